/*
 * A relay in a temporary directory, and a small blocking client for it. Every wait has a deadline
 * of CLIENT_WAIT_MS; running into it fails the test.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "base/buf.h"
#include "wire/conn.h"
#include "wire/hello.h"
#include "wire/message.h"

#define CLIENT_WAIT_MS 20000
#define RIG_PLACE "place-under-test"

struct rig_options {
	uint64_t absence_ms; /* 0: 60 s */
	bool whole_host;
	bool no_cgroup; /* shim, as for an ordinary user */
	uid_t run_as;   /* payload's uid and gid; 0: nobody else */
	uint32_t max_execs;
	uint64_t ring_max;   /* bytes of an exec's ring; 0: as usual */
	uint32_t open_files; /* limit for every exec; 0: none */
	int handed_fd;       /* a connection that comes with its config; 0: none */
	int spool_fd;        /* a directory to use instead of one beside the root; 0: none */
};

struct rig {
	pid_t pid;
	int dir_fd;
	char dir[64];
	char root[80];
	uint8_t key[HELLO_KEY_SIZE];
	char cgroup[160]; /* empty: none */
};

/* The twin of this build, unless BERTH_RELAY names another. */
const char *relay_program(void);

void rig_start(struct rig *rig, const struct rig_options *options);
/* Kills the relay if it still runs, and everything of it. */
void rig_stop(struct rig *rig);
/* True when the relay has ended by itself within the deadline; *status as waitpid gives it. */
bool rig_wait_end(struct rig *rig, int *status);
int rig_connect(const struct rig *rig);

struct peer {
	struct conn conn;
	uint32_t last_stream;
	struct frame frame;    /* the last one received */
	struct wire_message m; /* decoded, unless it was DATA or OUTPUT */
};

/* 0, or the code of the relay's ERROR. */
uint32_t peer_open(struct peer *p, const struct rig *rig, uint64_t epoch);
void peer_open_fd(struct peer *p, int fd);
void peer_close(struct peer *p);
/* Opens a stream with the request; returns its number. */
uint32_t peer_ask(struct peer *p, enum wire_type type, const void *msg);
void peer_say(struct peer *p, uint32_t stream, enum wire_type type, const void *msg);
void peer_data(struct peer *p, uint32_t stream, const void *data, size_t len, bool end);
void peer_raw(struct peer *p, const void *bytes, size_t len);
/* The next frame; its type, or 0 when the relay has closed the connection. */
unsigned peer_next(struct peer *p);
/* Skips frames of other streams. */
unsigned peer_next_on(struct peer *p, uint32_t stream);
/* Asks and waits for the answer on that stream: 0 for DONE or any result, else the code of ERROR.
 */
uint32_t peer_call(struct peer *p, enum wire_type type, const void *msg);

/* What came of an exec. */
struct outcome {
	uint32_t stream;
	struct buf out; /* stdout or PTY */
	struct buf err;
	uint64_t next_offset;
	uint32_t error; /* of the start */
	bool exited;
	bool stdin_closed;
	struct wire_exec_exit exit;
	unsigned stalls;
	uint64_t truncated;
	uint32_t pid;
	bool existing;
	bool acknowledge; /* as the server does after storing */
};

void outcome_free(struct outcome *o);
void exec_id_new(uint8_t id[WIRE_ID_SIZE]);
/* A start request for `sh -c script` (or argv) with plenty of credit. */
struct wire_exec_start exec_shell(const char *const argv[4], const char *script);
#define SHELL(script) exec_shell((const char *[4]){ "sh", "-c", script, NULL }, script)
/* Takes one frame of the exec's stream into account; false when it was the last. */
bool outcome_take(struct outcome *o, struct peer *p);
/* Until the exec has ended or could not start. */
void outcome_wait(struct outcome *o, struct peer *p);
/* Until the output holds the text. */
void outcome_wait_text(struct outcome *o, struct peer *p, const char *text);
void outcome_start(struct outcome *o, struct peer *p, const struct wire_exec_start *start);
void outcome_run(struct outcome *o, struct peer *p, const char *script);

/* Whether a process lives (a zombie does not), asked until the answer is as wanted or the deadline.
 */
bool process_lives(pid_t pid);
bool process_is_gone_soon(pid_t pid);
bool process_stops(pid_t pid); /* by SIGSTOP, soon */
int64_t test_now_ms(void);
