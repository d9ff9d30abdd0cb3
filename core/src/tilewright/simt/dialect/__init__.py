"""The ``simt`` dialect: operations (:mod:`.ops`), types, attributes, and operation interfaces."""
