#include "base/metric.h"
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#include "base/text.h"

/* Weak, so that a program that counts nothing links. */
extern const struct metric *const __start_berth_metrics[] __attribute__((weak));
extern const struct metric *const __stop_berth_metrics[] __attribute__((weak));

static const int64_t BOUNDS_US[METRIC_BUCKETS] = {
	500,    1000,    2500,    5000,    10000,    25000,    50000,    100000,    250000,
	500000, 1000000, 2500000, 5000000, 10000000, 30000000, 60000000, 120000000, 300000000,
};

int64_t metric_now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

void metric_observe_us(const struct metric *metric, int64_t us)
{
	struct metric_histogram *h = metric->histogram;
	size_t bucket = 0;

	us = us < 0 ? 0 : us;
	while (bucket < METRIC_BUCKETS && us > BOUNDS_US[bucket])
		bucket++;
	atomic_fetch_add_explicit(&h->count[bucket], 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&h->sum_us, (uint64_t)us, memory_order_relaxed);
}

void metric_write_head(struct buf *out, const char *name, const char *type, const char *help)
{
	buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

void metric_write_value(struct buf *out, const char *name, const char *labels, int64_t value)
{
	bool some = labels && *labels;

	buf_printf(out, "%s%s%s%s %lld\n", name, some ? "{" : "", some ? labels : "",
		   some ? "}" : "", (long long)value);
}

void metric_label(struct buf *labels, const char *key, const char *value)
{
	buf_printf(labels, "%s%s=\"", labels->len ? "," : "", key);
	for (; *value; value++) {
		if (*value == '\n')
			buf_puts(labels, "\\n");
		else if (*value == '"' || *value == '\\')
			buf_printf(labels, "\\%c", *value);
		else
			buf_putc(labels, *value);
	}
	buf_putc(labels, '"');
}

static void write_histogram(struct buf *out, const struct metric *metric)
{
	const char *comma = *metric->labels ? "," : "";
	const char *open = *metric->labels ? "{" : "", *close = *metric->labels ? "}" : "";
	uint64_t count = 0;

	for (size_t i = 0; i <= METRIC_BUCKETS; i++) {
		count += atomic_load_explicit(&metric->histogram->count[i], memory_order_relaxed);
		buf_printf(out, "%s_bucket{%s%sle=\"", metric->name, metric->labels, comma);
		if (i < METRIC_BUCKETS)
			buf_printf(out, "%g", (double)BOUNDS_US[i] / 1e6);
		else
			buf_puts(out, "+Inf");
		buf_printf(out, "\"} %llu\n", (unsigned long long)count);
	}
	uint64_t sum = atomic_load_explicit(&metric->histogram->sum_us, memory_order_relaxed);

	buf_printf(out, "%s_sum%s%s%s %.6f\n", metric->name, open, metric->labels, close,
		   (double)sum / 1e6);
	buf_printf(out, "%s_count%s%s%s %llu\n", metric->name, open, metric->labels, close,
		   (unsigned long long)count);
}

static void write_metric(struct buf *out, const struct metric *metric)
{
	if (metric->kind == METRIC_HISTOGRAM_)
		write_histogram(out, metric);
	else
		metric_write_value(out, metric->name, metric->labels,
				   atomic_load_explicit(metric->value, memory_order_relaxed));
}

void metrics_write(struct buf *out)
{
	static const char *const TYPES[] = { [METRIC_COUNTER_] = "counter",
					     [METRIC_GAUGE_] = "gauge",
					     [METRIC_HISTOGRAM_] = "histogram" };
	const struct metric *const *from = __start_berth_metrics, *const *to = __stop_berth_metrics;

	/* Few enough to look for the others of a name each time. */
	for (const struct metric *const *m = from; m < to; m++) {
		const struct metric *const *first = from;

		while (!streq((*first)->name, (*m)->name))
			first++;
		if (first != m)
			continue;
		metric_write_head(out, (*m)->name, TYPES[(*m)->kind], (*m)->help);
		for (const struct metric *const *same = m; same < to; same++)
			if (streq((*same)->name, (*m)->name))
				write_metric(out, *same);
	}
}

static int64_t count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int64_t count = -3; /* . and .. and the one that looks */

	if (!dir)
		return 0;
	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

/* Fields 20, 22, 23 and 24 of /proc/self/stat: threads, start, virtual bytes, resident pages. */
static void read_stat(long long *threads, long long *start, long long *virtual_bytes,
		      long long *pages)
{
	char text[1024] = "";
	FILE *f = fopen("/proc/self/stat", "re");
	size_t n = f ? fread(text, 1, sizeof(text) - 1, f) : 0;
	const char *rest;

	if (f)
		fclose(f);
	text[n] = '\0';
	rest = strrchr(text, ')');
	*threads = *start = *virtual_bytes = *pages = 0;
	if (rest)
		sscanf(rest + 2,
		       "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %lld "
		       "%*d "
		       "%lld %lld %lld",
		       threads, start, virtual_bytes, pages);
}

static double seconds(struct timeval t)
{
	return (double)t.tv_sec + (double)t.tv_usec / 1e6;
}

void metrics_write_process(struct buf *out)
{
	long long threads, start, virtual_bytes, pages;
	struct timespec wall, up;
	struct rusage usage;
	struct rlimit fds = { 0 };

	read_stat(&threads, &start, &virtual_bytes, &pages);
	getrusage(RUSAGE_SELF, &usage);
	getrlimit(RLIMIT_NOFILE, &fds);
	clock_gettime(CLOCK_REALTIME, &wall);
	clock_gettime(CLOCK_BOOTTIME, &up);
	metric_write_head(out, "process_cpu_seconds_total", "counter", "Processor time used");
	buf_printf(out, "process_cpu_seconds_total %.3f\n",
		   seconds(usage.ru_utime) + seconds(usage.ru_stime));
	metric_write_head(out, "process_resident_memory_bytes", "gauge", "Memory in use");
	metric_write_value(out, "process_resident_memory_bytes", "", pages * sysconf(_SC_PAGESIZE));
	metric_write_head(out, "process_virtual_memory_bytes", "gauge", "Address space in use");
	metric_write_value(out, "process_virtual_memory_bytes", "", virtual_bytes);
	metric_write_head(out, "process_open_fds", "gauge", "Open descriptors");
	metric_write_value(out, "process_open_fds", "", count_fds());
	metric_write_head(out, "process_max_fds", "gauge", "Descriptors there may be");
	metric_write_value(out, "process_max_fds", "", (int64_t)fds.rlim_cur);
	metric_write_head(out, "process_threads", "gauge", "Threads");
	metric_write_value(out, "process_threads", "", threads);
	metric_write_head(out, "process_start_time_seconds", "gauge", "When the process started");
	metric_write_value(out, "process_start_time_seconds", "",
			   wall.tv_sec - up.tv_sec + start / sysconf(_SC_CLK_TCK));
}
