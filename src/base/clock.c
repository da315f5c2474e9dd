#include "base/clock.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MS_PER_DAY 86400000LL
/* First and last millisecond of the years that four digits can write. */
#define FIRST_MS (-62167219200000LL)
#define LAST_MS 253402300799999LL

static int64_t read_clock(clockid_t id)
{
	struct timespec ts;

	/* Can only fail for a clock the kernel does not have; then no deadline could be kept. */
	if (clock_gettime(id, &ts) < 0)
		abort();
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

int64_t boottime_ms(void)
{
	return read_clock(CLOCK_BOOTTIME);
}

static int64_t system_mono(struct clock *clock)
{
	(void)clock;
	return read_clock(CLOCK_BOOTTIME);
}

static int64_t system_now(struct clock *clock)
{
	return read_clock(CLOCK_BOOTTIME) + clock->offset_ms;
}

static int64_t system_drift(struct clock *clock)
{
	return read_clock(CLOCK_REALTIME) - system_now(clock);
}

void clock_init_system(struct clock *clock)
{
	*clock = (struct clock){
		.now_ms = system_now,
		.mono_ms = system_mono,
		.drift_ms = system_drift,
		.offset_ms = read_clock(CLOCK_REALTIME) - read_clock(CLOCK_BOOTTIME),
	};
}

static int64_t fake_now(struct clock *clock)
{
	/* `clock` is the first member of struct fake_clock. */
	return __atomic_load_n(&((struct fake_clock *)clock)->now, __ATOMIC_SEQ_CST);
}

static int64_t fake_drift(struct clock *clock)
{
	(void)clock;
	return 0;
}

void clock_init_fake(struct fake_clock *fake, int64_t start_ms)
{
	*fake = (struct fake_clock){
		.clock = { .now_ms = fake_now, .mono_ms = fake_now, .drift_ms = fake_drift },
		.now = start_ms,
	};
}

void clock_fake_advance(struct fake_clock *fake, int64_t ms)
{
	__atomic_add_fetch(&fake->now, ms, __ATOMIC_SEQ_CST);
}

int clock_poll_timeout(struct clock *c, int64_t deadline_mono_ms)
{
	if (deadline_mono_ms < 0)
		return -1;

	int64_t now = clock_mono(c);

	if (deadline_mono_ms <= now)
		return 0;
	return deadline_mono_ms - now > INT_MAX ? INT_MAX : (int)(deadline_mono_ms - now);
}

/* By hand: every row that is shown has several times, and strftime looks at the locale for each. */
static void put_digits(char *out, int width, int number, char behind)
{
	out[width] = behind;
	for (; width--; number /= 10)
		out[width] = (char)('0' + number % 10);
}

void time_iso(int64_t ms, char out[TIME_ISO_SIZE])
{
	struct tm tm;

	if (ms < FIRST_MS)
		ms = FIRST_MS;
	if (ms > LAST_MS)
		ms = LAST_MS;

	int64_t fraction = ms % 1000;

	if (fraction < 0)
		fraction += 1000;

	time_t seconds = (time_t)((ms - fraction) / 1000);

	gmtime_r(&seconds, &tm);

	put_digits(out, 4, tm.tm_year + 1900, '-');
	put_digits(out + 5, 2, tm.tm_mon + 1, '-');
	put_digits(out + 8, 2, tm.tm_mday, 'T');
	put_digits(out + 11, 2, tm.tm_hour, ':');
	put_digits(out + 14, 2, tm.tm_min, ':');
	put_digits(out + 17, 2, tm.tm_sec, '.');
	put_digits(out + 20, 3, (int)fraction, 'Z');
	out[24] = '\0';
}

/*
 * Reads exactly `digits` digits and moves on; -1 when they are not there or the value is too high.
 */
static int take_number(const char **s, int digits, int max)
{
	int value = 0;

	for (int i = 0; i < digits; i++, (*s)++) {
		if (**s < '0' || **s > '9')
			return -1;
		value = value * 10 + (**s - '0');
	}
	return value <= max ? value : -1;
}

static bool take_char(const char **s, char c)
{
	if (**s != c)
		return false;
	(*s)++;
	return true;
}

/* "2026-11-15" as days since 1970, by the usual count of 400-year eras that begin in March. */
static bool take_date(const char **s, int64_t *days)
{
	static const int month_days[] = { 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };
	int year = take_number(s, 4, 9999);

	if (year < 0 || !take_char(s, '-'))
		return false;

	int month = take_number(s, 2, 12);

	if (month < 1 || !take_char(s, '-'))
		return false;

	int day = take_number(s, 2, month_days[month - 1]);
	bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;

	if (day < 1 || (month == 2 && day == 29 && !leap))
		return false;

	int y = year - (month <= 2);
	int era = (y >= 0 ? y : y - 399) / 400;
	int year_of_era = y - era * 400;
	int day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
	int day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;

	*days = (int64_t)era * 146097 + day_of_era - 719468;
	return true;
}

/* "20:07:16.123" as milliseconds of the day; digits past the third are dropped. */
static bool take_time(const char **s, int64_t *ms)
{
	int hour = take_number(s, 2, 23);

	if (hour < 0 || !take_char(s, ':'))
		return false;

	int minute = take_number(s, 2, 59);

	if (minute < 0 || !take_char(s, ':'))
		return false;

	int second = take_number(s, 2, 59);

	if (second < 0)
		return false;
	*ms = ((hour * 60 + minute) * 60 + second) * 1000LL;
	if (!take_char(s, '.'))
		return true;

	int weight = 100, digits = 0;

	for (; **s >= '0' && **s <= '9' && digits < 9; (*s)++, digits++) {
		*ms += (**s - '0') * weight;
		weight /= 10;
	}
	return digits > 0;
}

static bool take_zone(const char **s, int64_t *offset_ms)
{
	*offset_ms = 0;
	if (take_char(s, 'Z'))
		return true;

	bool west = **s == '-';

	if (!west && **s != '+')
		return false;
	(*s)++;

	int hour = take_number(s, 2, 23);

	if (hour < 0 || !take_char(s, ':'))
		return false;

	int minute = take_number(s, 2, 59);

	if (minute < 0)
		return false;
	*offset_ms = (hour * 60 + minute) * 60000LL * (west ? -1 : 1);
	return true;
}

int time_parse_iso(const char *s, int64_t *ms)
{
	int64_t days, time_of_day, offset;

	if (!s || !take_date(&s, &days) || !take_char(&s, 'T') || !take_time(&s, &time_of_day) ||
	    !take_zone(&s, &offset) || *s)
		return -1;
	*ms = days * MS_PER_DAY + time_of_day - offset;
	return 0;
}
