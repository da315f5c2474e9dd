#include "tempdir.h"
#include <pthread.h>
#include "base/metric.h"
#include "base/text.h"

METRIC_COUNTER(APPLES, "test_fruit_total", "kind=\"apple\"", "Fruit");
METRIC_GAUGE(WAITING, "test_waiting", "", "Who waits");
METRIC_COUNTER(PEARS, "test_fruit_total", "kind=\"pear\"", "Fruit");
METRIC_HISTOGRAM(TOOK, "test_seconds", "", "How long");
METRIC_HISTOGRAM(TOOK_FAILED, "test_labelled_seconds", "result=\"failed\"", "How long");

static char *written(void)
{
	struct buf out = { 0 };

	metrics_write(&out);
	return buf_steal(&out);
}

#define has(text, line)                                                                            \
	do {                                                                                       \
		if (!strstr(text, line))                                                           \
			fail_msg("no \"%s\" in\n%s", line, text);                                  \
	} while (0)

static void those_of_one_name_stand_together_under_one_head(void **state)
{
	(void)state;
	metric_add(&APPLES, 2);
	metric_add(&PEARS, 3);
	metric_add(&WAITING, 5);
	metric_add(&WAITING, -1);

	_cleanup_free_ char *text = written();

	has(text, "# HELP test_fruit_total Fruit\n# TYPE test_fruit_total counter\n");
	has(text, "test_waiting 4\n");
	has(text, "# TYPE test_waiting gauge\n");

	const char *head = strstr(text, "# TYPE test_fruit_total");

	assert_null(strstr(head + 1, "# TYPE test_fruit_total"));
	assert_true(str_starts(strchr(head, '\n') + 1, "test_fruit_total{kind=\""));
	has(head, "test_fruit_total{kind=\"apple\"} 2\n");
	has(head, "test_fruit_total{kind=\"pear\"} 3\n");
}

static void a_histogram_counts_upwards(void **state)
{
	(void)state;
	metric_observe_us(&TOOK, -7);
	metric_observe_us(&TOOK, 500);
	metric_observe_us(&TOOK, 501);
	metric_observe_us(&TOOK, 400LL * 1000 * 1000);
	metric_observe_us(&TOOK_FAILED, 2000000);

	_cleanup_free_ char *text = written();

	has(text, "test_seconds_bucket{le=\"0.0005\"} 2\n");
	has(text, "test_seconds_bucket{le=\"0.001\"} 3\n");
	has(text, "test_seconds_bucket{le=\"300\"} 3\n");
	has(text, "test_seconds_bucket{le=\"+Inf\"} 4\n");
	has(text, "test_seconds_sum 400.001001\n");
	has(text, "test_seconds_count 4\n");
	has(text, "test_labelled_seconds_bucket{result=\"failed\",le=\"2.5\"} 1\n");
	has(text, "test_labelled_seconds_sum{result=\"failed\"} 2.000000\n");
}

static void a_label_cannot_end_early(void **state)
{
	_cleanup_buf_ struct buf labels = { 0 };
	(void)state;

	metric_label(&labels, "route", "/api/:id");
	metric_label(&labels, "odd", "a\"b\\c\nd");
	assert_string_equal(buf_str(&labels), "route=\"/api/:id\",odd=\"a\\\"b\\\\c\\nd\"");
}

METRIC_COUNTER(TOGETHER, "test_together_total", "", "Added by several threads");

static void *add_many(void *arg)
{
	for (int i = 0; i < 10000; i++)
		metric_add(&TOGETHER, 1);
	return arg;
}

static void no_addition_is_lost(void **state)
{
	pthread_t threads[4];
	(void)state;

	for (size_t i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, add_many, NULL), 0);
	for (size_t i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);

	_cleanup_free_ char *text = written();

	has(text, "test_together_total 40000\n");
}

static void the_process_says_what_it_uses(void **state)
{
	_cleanup_buf_ struct buf out = { 0 };
	long long bytes = 0, fds = 0;
	(void)state;

	metrics_write_process(&out);
	sscanf(strstr(buf_str(&out), "\nprocess_resident_memory_bytes ") + 1, "%*s %lld", &bytes);
	sscanf(strstr(buf_str(&out), "\nprocess_open_fds ") + 1, "%*s %lld", &fds);
	assert_true(bytes > 100000);
	assert_true(fds >= 3 && fds < 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(those_of_one_name_stand_together_under_one_head),
		cmocka_unit_test(a_histogram_counts_upwards),
		cmocka_unit_test(a_label_cannot_end_early),
		cmocka_unit_test(no_addition_is_lost),
		cmocka_unit_test(the_process_says_what_it_uses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
