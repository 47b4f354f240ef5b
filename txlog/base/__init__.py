"""What every room may use: errors, clocks, threads, Arrow values, observation."""
