"""Demo on one machine: jobs are suspended, queued, admitted and run."""
