/*
 * One command in the place.
 *
 *   RUNNING   the main process lives; may have been asked to leave (exec_end)
 *   DRAINING  it has ended; output pipes are still open (for at most WIRE_GRACE_MS, then the tree
 *             is killed), or bytes wait for room in the ring, or the tree is being emptied
 *   EXITED    the exit is in the journal; output may still wait for the server. Until EXEC_FORGET.
 *
 * exec_advance moves it along and may be called at any time; every event that could matter does.
 */
#pragma once

#include "relay/launch.h"
#include "relay/procs.h"
#include "relay/relay.h"
#include "relay/spool.h"

struct outlet {
	struct exec *exec;
	struct watch watch; /* fd is -1 when it is closed or paused */
	enum wire_channel channel;
	int fd;       /* -1: at its end */
	int held_end; /* where the process writes, until its end; -1: not held */
	bool floods;  /* has said as much at once as fits a small buffer */
	bool enlarged;
};

enum { OUTLET_MAIN, OUTLET_STDERR, OUTLETS };

struct exec {
	struct exec *next;
	struct relay *relay;
	uint8_t id[WIRE_ID_SIZE];
	char id_text[ID_SIZE];
	enum wire_exec_phase phase;
	pid_t pid;
	bool pty;
	struct wire_bytes note; /* the server's, owned */
	struct procs tree;

	struct outlet outlet[OUTLETS];
	struct ring ring;
	struct buf held; /* read from the process, refused by the disk */
	enum wire_channel held_channel;
	struct timer held_timer;
	bool disk_told; /* the log has it, once */
	bool stalled;
	bool was_stalled; /* since somebody last looked */

	int stdin_fd; /* -1: closed or never there */
	struct watch stdin_watch;
	struct buf stdin_buf;
	bool stdin_end; /* close when the buffer is empty */
	uint64_t stdin_offset;
	uint32_t stdin_credit; /* what the server may still send */
	uint32_t stdin_owed;   /* written since the last CREDIT */

	uint32_t stream; /* of the attachment; 0: none */
	uint64_t sent;
	uint64_t credit;
	uint64_t acked;
	bool exit_sent;

	bool main_ended;
	bool finishing; /* the tree was told to end */
	bool tree_empty;
	int wait_status;
	uint64_t user_us, sys_us, max_rss_kb;
	int64_t started_us, wall_us;
	uint64_t started_ms; /* civil */
	enum wire_reason kill_reason;
	enum wire_reason reason;
	struct timer
		journal; /* it is in the journal when this is due, unless it has ended by then */
	struct timer deadline;
	struct timer grace;
	bool grace_over;
	struct timer leave; /* SIGTERM was sent; SIGKILL follows when it is due */
	bool asked;         /* SIGTERM was sent */
	bool awaited;       /* the tree was told to say when it is empty */
	uint64_t oom_kills; /* of the whole place, when this began */
};

struct exec *exec_find(struct relay *relay, const uint8_t id[WIRE_ID_SIZE]);
struct exec *exec_by_stream(struct relay *relay, uint32_t stream);

struct start_failure {
	enum wire_error_code code;
	int errnum;
	char message[200];
};

/* -1: `failure` says why. The exec is then not known. */
int exec_start(struct relay *relay, const struct wire_exec_start *m, struct exec **out,
	       struct start_failure *failure);
/* SIGTERM, and SIGKILL after WIRE_LEAVE_MS. Asking again changes nothing. */
void exec_end(struct exec *exec, enum wire_reason reason);
/* SIGKILL at once. */
void exec_kill(struct exec *exec, enum wire_reason reason);
void exec_forget(struct exec *exec);
/* In a child that does something else: who waits for the end of a pipe must not wait for it. */
void exec_leave_pipes(struct relay *relay);
void exec_describe(const struct exec *exec, struct wire_exec_state *out);

/* Told by the tree: the main process ended; nothing of the tree is left. */
void exec_main_ended(struct exec *exec, int wait_status, uint64_t user_us, uint64_t sys_us,
		     uint64_t max_rss_kb);
void exec_procs_emptied(struct exec *exec);
void exec_advance(struct exec *exec);

/* start.c: everything between the request and the running program. */
int start_run(struct exec *exec, const struct wire_exec_start *m, struct start_failure *failure);
/* What all of them share; made for the first, or ahead of it. */
void start_prepare(struct relay *relay);

/* output.c; descriptors given to it and to input.c do not block. */
int output_open(struct exec *exec, int outlet, int fd, enum wire_channel channel,
		struct error *err);
/*
 * The end of the process closes its pipes one by one, and each would wake the relay a moment before
 * it is woken for the end itself. With our own copy of the other end it is woken once.
 */
void output_hold(struct exec *exec, int outlet, int child_end);
void output_let_go(struct exec *exec);
void output_close(struct exec *exec);
bool output_is_open(const struct exec *exec);
/* Continues reading where the ring has room again. */
void output_resume(struct exec *exec);
/* Adds one stretch of what credit and the connection allow, or what follows it. False: nothing to
 * add. */
bool output_pump(struct exec *exec);
void output_acknowledge(struct exec *exec, uint64_t offset);

/* input.c */
int input_open(struct exec *exec, int fd, struct error *err);
void input_close(struct exec *exec);
/* -1: more than the credit allowed. */
int input_take(struct exec *exec, const uint8_t *data, uint32_t len, bool end);

/* pty.c */
int pty_open(uint32_t rows, uint32_t cols, const struct user *user, int *master, int *slave,
	     struct error *err);
int pty_resize(int master, uint32_t rows, uint32_t cols);

/* journal.c: its state as it is now. -1 when the record could not be written. */
int journal_open(struct relay *relay, struct error *err);
int journal_record(struct relay *relay, const struct exec *exec, struct error *err);
