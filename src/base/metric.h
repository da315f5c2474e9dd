/*
 * Counters, gauges and histograms, kept where they are counted and written out as Prometheus text
 * (0.0.4). Each registers itself in a linker section, as statements and fault points do, so that
 * whoever counts something needs no list to be in. They are the process's own and the one kind of
 * global state that is meant to be: adding is one atomic addition and never waits.
 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>
#include "base/buf.h"

enum metric_kind { METRIC_COUNTER_, METRIC_GAUGE_, METRIC_HISTOGRAM_ };

#define METRIC_BUCKETS 18 /* and one for what is above the last */

struct metric_histogram {
	_Atomic uint64_t count[METRIC_BUCKETS + 1];
	_Atomic uint64_t sum_us;
};

struct metric {
	const char *name;   /* berth_..., with its unit: _total, _seconds, _bytes */
	const char *labels; /* `result="ok"`, or "" */
	const char *help;
	enum metric_kind kind;
	_Atomic int64_t *value;
	struct metric_histogram *histogram;
};

#define METRIC_REGISTER_(ident, ...)                                                               \
	static const struct metric ident = { __VA_ARGS__ };                                        \
	static const struct metric *const ident##_metric                                           \
		__attribute__((used, section("berth_metrics"))) = &ident
/* METRIC_COUNTER(STARTS, "berth_run_starts_total", "", "Runs that were started"); */
#define METRIC_COUNTER(ident, name, labels, help)                                                  \
	static _Atomic int64_t ident##_value;                                                      \
	METRIC_REGISTER_(ident, name, labels, help, METRIC_COUNTER_, &ident##_value, NULL)
#define METRIC_GAUGE(ident, name, labels, help)                                                    \
	static _Atomic int64_t ident##_value;                                                      \
	METRIC_REGISTER_(ident, name, labels, help, METRIC_GAUGE_, &ident##_value, NULL)
/* Of durations, from half a millisecond to five minutes. */
#define METRIC_HISTOGRAM(ident, name, labels, help)                                                \
	static struct metric_histogram ident##_histogram;                                          \
	METRIC_REGISTER_(ident, name, labels, help, METRIC_HISTOGRAM_, NULL, &ident##_histogram)

static inline void metric_add(const struct metric *metric, int64_t n)
{
	atomic_fetch_add_explicit(metric->value, n, memory_order_relaxed);
}
void metric_observe_us(const struct metric *metric, int64_t us);
/* A moment for metric_observe_since, in microseconds that only move forward. */
int64_t metric_now_us(void);
static inline void metric_observe_since(const struct metric *metric, int64_t start_us)
{
	metric_observe_us(metric, metric_now_us() - start_us);
}

/* Everything that registered, those of one name together. */
void metrics_write(struct buf *out);

/* For what is looked up when asked: the head once, then a line per set of labels. */
void metric_write_head(struct buf *out, const char *name, const char *type, const char *help);
void metric_write_value(struct buf *out, const char *name, const char *labels, int64_t value);
/* Appends `key="value"` with a comma before it unless the labels are empty; escapes the value. */
void metric_label(struct buf *labels, const char *key, const char *value);
/* Memory, descriptors, threads, processor time and start of this process. */
void metrics_write_process(struct buf *out);
