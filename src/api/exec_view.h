/*
 * Looking at an exec: one that was started through the API (exec/execs.h), going or ended, or the
 * command of a run, which has the run's id.
 */
#pragma once

#include "api/server.h"
#include "exec/execs.h"

struct exec_view {
	struct server *server;
	char id[ID_SIZE];
	bool is_run;
	struct live_exec *live;       /* NULL: it has ended, or is a run's */
	struct runlog_reader *reader; /* NULL: its output is gone */
};
void exec_view_close(struct exec_view *view);
#define _cleanup_exec_view_ _cleanup_(exec_view_close)

/* ERR_NOT_FOUND, or ERR_RUN_STATE when a run's command has not started yet. */
int exec_view_open(struct server *server, const char *id, int64_t since, struct exec_view *view,
		   struct error *err);
/* Takes the reference to an exec that was just started. */
int exec_view_new(struct server *server, const char *id, struct live_exec *live,
		  struct exec_view *view, struct error *err);

/* 1 and the next output, 0 when there is none at the moment, -1. Clears the event. */
int exec_view_read(struct exec_view *view, size_t max, struct runlog_chunk *chunk,
		   struct error *err);
/* The same, for bytes that nobody here looks at. */
int exec_view_stretch(struct exec_view *view, int64_t max, struct runlog_stretch *stretch,
		      struct error *err);
/* Readable when there may be more to read, or the exec has ended; -1: nothing more will come. */
int exec_view_event(const struct exec_view *view);
/* False once all output that will ever be is there, which is also when the outcome is. */
bool exec_view_is_live(struct exec_view *view);
/* How it ended. The row of a run follows its output after a moment, which is waited for. */
int exec_view_outcome(struct exec_view *view, struct exec_outcome *outcome, struct error *err);
