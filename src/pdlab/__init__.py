"""The laboratory: experiments on emulated links, from scenario to record to report."""
