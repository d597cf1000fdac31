"""What every room may use: errors, files, C libraries, processes."""
