/*
 * The shim: a fork of the relay that is parent and subreaper of one exec's processes. It starts the
 * program, reaps, signals, and kills everything below it when told to or when the relay is gone.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>
#include "relay/exec.h"

/* Relay and shim are the same program: plain structs travel between them, one per packet. */
/* AWAIT: end when nothing is left below, FINISH: see to it. */
enum order_verb { ORDER_SIGNAL, ORDER_KILL, ORDER_AWAIT, ORDER_FINISH };

struct order {
	enum order_verb verb;
	unsigned target;
	int signal;
};

enum report_kind { REPORT_STARTED, REPORT_FAILED, REPORT_ENDED };

struct report {
	enum report_kind kind;
	pid_t pid;
	enum launch_step step;
	int errnum;
	int status;
	uint64_t user_us, sys_us, max_rss_kb;
};

/* Runs in the forked child; `fd` is its end of the socket pair. */
_Noreturn void shim_main(struct exec *exec, struct launch *l, int fd);
