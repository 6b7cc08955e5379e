"""Volcano's Commands OpenQueue, CloseQueue and ResumeJob, carried out where no Volcano controller runs."""
