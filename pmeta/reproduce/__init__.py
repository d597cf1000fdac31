"""Every table and figure of the paper from one command: cells of data, a queue of runs, tables
beside the paper's."""
