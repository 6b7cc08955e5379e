"""The main job shown on one machine: jobs are paused, judged, admitted and run."""
