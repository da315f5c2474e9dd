/*
 * The relay: the small program inside a place that does everything there. One thread, one epoll
 * loop; `struct relay` is all of its state and is handed to whoever needs it.
 *
 *   config      what the starter sent, from a pipe
 *   session     one connection: hello; request: what is asked on it
 *   exec        a command's life; launch and start: its first process
 *   output      pipes -> ring -> frames; input: frames -> standard input; pty: terminals
 *   procs       how an exec's processes are held together and killed; pause: frozen
 *   spool       the ring; journal: exits on disk
 *   files       requests about files; file_tree: about whole trees of files
 *   absence     the dead-man switch
 *   background  slow work in a forked child
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "base/id.h"
#include "relay/launch.h"
#include "relay/user.h"
#include "wire/hello.h"
#include "wire/loop.h"

struct exec;
struct session;
struct background;
struct procs_kind;

struct config {
	char *place_id;
	uint8_t key[HELLO_KEY_SIZE];
	uint64_t absence_ms;
	bool whole_host; /* the root is "/": paths are absolute */
	char *cwd;
	bool run_as; /* the payload is another user: `payload` */
	bool confine;
	uint64_t ring_max;
	uint32_t max_execs;
	bool has_cgroup;
	uint8_t *seccomp; /* BPF program for every exec, or NULL */
	size_t seccomp_len;
	uint32_t open_files; /* limit for every exec; 0: none */
	uint32_t limit_fds;  /* cgroups every exec enters, from RELAY_FD_LIMIT on */
	struct user payload; /* who execs and file requests act as */
};

struct journal {
	int fd;
	uint64_t size;
	uint64_t kept; /* size when it was last written anew */
};

/* See pause.c. */
struct pause {
	bool paused;
	uint32_t stream; /* of who waits to hear that nothing runs any more; 0: nobody */
	uint64_t epoch;  /* of its session */
	int64_t until;   /* then it is told all the same */
	int step_ms;
	struct timer check;
};

struct relay {
	struct loop loop;
	struct config config;
	int null_fd;           /* /dev/null, standard input of execs that have none */
	bool confined;         /* what it executes has no capability */
	bool given_cgroup;     /* RELAY_FD_CGROUP */
	bool given_oom;        /* RELAY_FD_OOM */
	char boot_id[ID_SIZE]; /* of the machine */
	struct watch listener;
	struct watch signals;
	struct watch absence;
	int64_t heard_ms;        /* last authenticated traffic, boottime_ms */
	struct session *session; /* the authenticated one, or NULL */
	struct session *pending; /* those still in their hello */
	unsigned pending_count;
	unsigned refused_count; /* strangers turned away; bounds what they can write into the log */
	uint64_t epoch;         /* highest that proved itself */
	struct exec *execs;
	uint32_t exec_count;
	struct exec *spare_exec; /* memory of the last one that was forgotten, for the next */
	struct background *asides;
	const struct procs_kind *tree;
	void *tree_state;   /* of the kind */
	void *launch_stack; /* see start_prepare */
	struct launch_oom oom;
	uint8_t *scratch; /* RELAY_SCRATCH bytes while execs run, else NULL */
	struct journal journal;
	struct pause pause;
	bool ending;
	int64_t end_until;
	struct timer end_timer;
};

#define RELAY_SCRATCH (64u << 10)

/*
 * Begins the end, for want of a server: every exec is killed as lease_lost; when all have ended, or
 * after a bounded time, the reason is written into the spool and the loop stops.
 */
void relay_end(struct relay *relay);

/* *handed: a connection that came with it, the caller's; -1: none did. */
int config_read(struct config *config, int fd, struct user_tables *tables, int *handed,
		struct error *err);

int absence_open(struct relay *relay, struct error *err);
/* Arms the timer; relay_end follows when nothing authenticated was heard for the TTL. */
void absence_start(struct relay *relay);

/* Reaps children until none is left that has ended. */
void relay_reap(struct relay *relay);
