"""The command line: start a cluster on this machine, run one node of a cluster, manage models."""
