/*
 * One epoll loop with timers, for the single-threaded programs: relay and keeper. A watch belongs
 * to the struct it is embedded in; removing it inside any callback is safe, it is not called again.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/clock.h"
#include "base/error.h"

struct watch {
	int fd; /* not owned; -1 when not watched */
	uint32_t events;
	void (*ready)(struct watch *, uint32_t events);
};

struct timer {
	int64_t at; /* boottime_ms; 0: not armed */
	void (*due)(struct timer *);
	struct timer *next;
};

#define LOOP_BATCH 16

struct loop {
	int epoll_fd;
	struct timer *timers; /* earliest first */
	struct watch *batch[LOOP_BATCH];
	bool stop;
};

#define container_of(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

int loop_init(struct loop *loop, struct error *err);
int loop_watch(struct loop *loop, struct watch *watch, int fd, uint32_t events, struct error *err);
void loop_change(struct loop *loop, struct watch *watch, uint32_t events);
void loop_unwatch(struct loop *loop, struct watch *watch);
void loop_arm(struct loop *loop, struct timer *timer, int64_t after_ms);
void loop_disarm(struct loop *loop, struct timer *timer);
/* Runs until loop->stop. */
int loop_run(struct loop *loop, struct error *err);
int64_t loop_now_us(void); /* CLOCK_BOOTTIME */
