"""What every process shares: settings, values, errors, metrics, how a process runs. No torch."""
