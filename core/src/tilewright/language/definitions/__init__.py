"""Python definitions of the language: functions and aggregates, their source and dependencies."""
