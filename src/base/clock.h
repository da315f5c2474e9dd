/*
 * The one clock. `clock_now` is civil time in milliseconds that never jumps while the program runs:
 * it is the wall clock read once at start, carried on by CLOCK_BOOTTIME. Deadlines and recorded
 * times therefore agree with each other whatever an operator or NTP does to the wall clock; the
 * difference is reported by drift_ms so that it can be said aloud. A program started after
 * the jump uses the new time. Tests give a fake.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct clock {
	int64_t (*now_ms)(struct clock *);   /* civil time, steady */
	int64_t (*mono_ms)(struct clock *);  /* CLOCK_BOOTTIME, for deadlines inside the process */
	int64_t (*drift_ms)(struct clock *); /* wall clock minus now_ms */
	int64_t offset_ms;
};

void clock_init_system(struct clock *clock);
static inline int64_t clock_now(struct clock *c)
{
	return c->now_ms(c);
}
static inline int64_t clock_mono(struct clock *c)
{
	return c->mono_ms(c);
}

/* Fake clock for tests: both clocks start at `start_ms` and move only by clock_fake_advance. */
struct fake_clock {
	struct clock clock;
	int64_t now;
};
void clock_init_fake(struct fake_clock *fake, int64_t start_ms);
void clock_fake_advance(struct fake_clock *fake, int64_t ms);

/* CLOCK_BOOTTIME in milliseconds, where no clock is given: what mono_ms of the system's clock is. */
int64_t boottime_ms(void);

/* Milliseconds until a clock_mono deadline, for poll(): 0..INT_MAX; -1 for a deadline below 0. */
int clock_poll_timeout(struct clock *c, int64_t deadline_mono_ms);

#define TIME_ISO_SIZE 32
/* "2026-11-15T20:07:16.123Z" */
void time_iso(int64_t ms, char out[TIME_ISO_SIZE]);
/* Accepts what time_iso writes, with or without fraction, Z or +hh:mm. Returns 0 or -1. */
int time_parse_iso(const char *s, int64_t *ms);
