#include "server/log_compressor.h"

#include <poll.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/log.h"

#define PERIOD_MS 60000
#define PACKER_STACK (256u << 10)
#define NICE 10

struct log_compressor {
	struct runs *runs;
	struct runlog_store *logs;
	struct clock *clock;
	int64_t period_ms;
	pthread_t thread;
	int stop_fd;
	atomic_bool stopping;
};

struct names {
	char **list; /* strv */
};

static void note(void *arg, const char *name, int64_t end)
{
	struct names *names = arg;
	(void)end;

	strv_push(&names->list, xstrdup(name));
}

/* What writers have left behind. */
static void pack_growing(struct log_compressor *compressor)
{
	_cleanup_strv_ char **names = NULL;
	struct names live = { 0 };

	runlog_each_live(compressor->logs, note, &live);
	names = live.list;
	for (char **name = names; name && *name && !atomic_load(&compressor->stopping); name++) {
		_cleanup_error_ struct error err = { 0 };

		if (runlog_pack(compressor->logs, *name, &compressor->stopping, &err) < 0 &&
		    err.code != ERR_CANCELLED)
			log_warn("log %s stays uncompressed: %s", *name, err.message);
	}
}

static void pack_ended(struct log_compressor *compressor)
{
	_cleanup_error_ struct error err = { 0 };
	/* Those who follow a run read its last output; what is as old as a period is at rest. */
	int64_t before = clock_now(compressor->clock) - compressor->period_ms;

	if (runs_pack_logs(compressor->runs, before, &compressor->stopping, &err) < 0 &&
	    err.code != ERR_CANCELLED)
		log_warn("compressing logs: %s", err.message);
}

static void *log_compressor_main(void *arg)
{
	struct log_compressor *compressor = arg;
	struct pollfd stop = { .fd = compressor->stop_fd, .events = POLLIN };

	/* On Linux this is of the thread alone. */
	setpriority(PRIO_PROCESS, (id_t)gettid(), NICE);
	while (poll(&stop, 1, (int)compressor->period_ms) <= 0) {
		pack_growing(compressor);
		pack_ended(compressor);
	}
	return NULL;
}

int log_compressor_start(struct runs *runs, struct runlog_store *logs, struct clock *clock,
			 int64_t period_ms, struct log_compressor **out, struct error *err)
{
	struct log_compressor *compressor = xcalloc(1, sizeof(*compressor));
	pthread_attr_t attr;

	compressor->runs = runs;
	compressor->logs = logs;
	compressor->clock = clock;
	compressor->period_ms = period_ms ? period_ms : PERIOD_MS;
	compressor->stop_fd = latch_new(err);
	if (compressor->stop_fd < 0) {
		free(compressor);
		return -1;
	}
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, PACKER_STACK);

	int failed = pthread_create(&compressor->thread, &attr, log_compressor_main, compressor);

	pthread_attr_destroy(&attr);
	if (failed) {
		close_fdp(&compressor->stop_fd);
		free(compressor);
		return error_errno(err, failed, "cannot start the thread that compresses logs");
	}
	*out = compressor;
	return 0;
}

void log_compressor_stop(struct log_compressor *compressor)
{
	if (!compressor)
		return;
	atomic_store(&compressor->stopping, true);
	latch_set(compressor->stop_fd);
	pthread_join(compressor->thread, NULL);
	close_fdp(&compressor->stop_fd);
	free(compressor);
}
