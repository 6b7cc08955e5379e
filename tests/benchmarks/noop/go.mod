module noop

go 1.26
