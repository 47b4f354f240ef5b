"""The format `txlog`: batch and streaming sources and sinks, and the tasks of readers."""
