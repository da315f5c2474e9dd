/*
 * How the processes of an exec are held together, so that "kill" means all of them.
 *
 *   cgroup   one cgroup v2 per exec below the place's. Nothing leaves it but a payload that is
 *            root and means to. Needs root and a v2 tree.
 *   shim     a small process per exec is the subreaper of everything below it: daemons that fork
 *            twice and start sessions stay its descendants, and are found in /proc. A payload of
 *            the same uid can kill the shim; its strays then fall to the relay and are found by
 *            the mark in their environment, which a process that means to can remove.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>
#include "base/error.h"
#include "relay/launch.h"
#include "wire/loop.h"

struct relay;
struct exec;
struct slot;

struct procs {
	struct slot *slot; /* cgroup */
	struct timer check;
	int check_ms;
	pid_t shim_pid; /* shim */
	struct watch shim;
	int shim_fd;
};

struct procs_kind {
	const char *name;
	uint64_t feature;
	/* -1: this kind cannot be had here. */
	int (*init)(struct relay *, struct error *);
	/* Makes ahead what the first exec needs. NULL: nothing. */
	void (*prepare)(struct relay *);
	/* Fills exec->pid; -1 with the launch's failure. */
	int (*start)(struct exec *, struct launch *);
	/* 0 or -errno. */
	int (*signal)(struct exec *, unsigned target, int signal);
	void (*kill)(struct exec *);
	/* exec_procs_emptied is called when nothing is left, maybe at once; nothing is killed. */
	void (*await)(struct exec *);
	/* Kills what is left; exec_procs_emptied is called when nothing is, maybe at once. */
	void (*finish)(struct exec *);
	void (*release)(struct exec *);
	/* Nothing of it runs, or it goes on; kills reach it all the same. 0 or -errno. NULL: this
	 * kind cannot. */
	int (*freeze)(struct exec *, bool frozen);
	/* True when nothing of it runs since `freeze`. */
	bool (*is_frozen)(struct exec *);
	/* True if the memory controller killed something of it. */
	bool (*ran_out_of_memory)(struct exec *);
	/* A child of the relay ended. False: not one of this kind's. */
	bool (*reaped)(struct relay *, pid_t, int status, uint64_t user_us, uint64_t sys_us,
		       uint64_t max_rss_kb);
};

extern const struct procs_kind procs_cgroup;
extern const struct procs_kind procs_shim;
