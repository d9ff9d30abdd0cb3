"""Native functions of the host: launchers, dispatchers, signal handlers."""
