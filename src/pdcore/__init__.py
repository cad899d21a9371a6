"""What every process shares: settings, values, errors, metrics, the way a process runs. No torch."""
