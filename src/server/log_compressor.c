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

struct packer {
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
static void pack_growing(struct packer *packer)
{
	_cleanup_strv_ char **names = NULL;
	struct names live = { 0 };

	runlog_each_live(packer->logs, note, &live);
	names = live.list;
	for (char **name = names; name && *name && !atomic_load(&packer->stopping); name++) {
		_cleanup_error_ struct error err = { 0 };

		if (runlog_pack(packer->logs, *name, &packer->stopping, &err) < 0 &&
		    err.code != ERR_CANCELLED)
			log_warn("log %s stays uncompressed: %s", *name, err.message);
	}
}

static void pack_ended(struct packer *packer)
{
	_cleanup_error_ struct error err = { 0 };
	/* Those who follow a run read its last output; what is as old as a period is at rest. */
	int64_t before = clock_now(packer->clock) - packer->period_ms;

	if (runs_pack_logs(packer->runs, before, &packer->stopping, &err) < 0 &&
	    err.code != ERR_CANCELLED)
		log_warn("compressing logs: %s", err.message);
}

static void *packer_main(void *arg)
{
	struct packer *packer = arg;
	struct pollfd stop = { .fd = packer->stop_fd, .events = POLLIN };

	/* On Linux this is of the thread alone. */
	setpriority(PRIO_PROCESS, (id_t)gettid(), NICE);
	while (poll(&stop, 1, (int)packer->period_ms) <= 0) {
		pack_growing(packer);
		pack_ended(packer);
	}
	return NULL;
}

int packer_start(struct runs *runs, struct runlog_store *logs, struct clock *clock,
		 int64_t period_ms, struct packer **out, struct error *err)
{
	struct packer *packer = xcalloc(1, sizeof(*packer));
	pthread_attr_t attr;

	packer->runs = runs;
	packer->logs = logs;
	packer->clock = clock;
	packer->period_ms = period_ms ? period_ms : PERIOD_MS;
	packer->stop_fd = latch_new(err);
	if (packer->stop_fd < 0) {
		free(packer);
		return -1;
	}
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, PACKER_STACK);

	int failed = pthread_create(&packer->thread, &attr, packer_main, packer);

	pthread_attr_destroy(&attr);
	if (failed) {
		close_fdp(&packer->stop_fd);
		free(packer);
		return error_errno(err, failed, "cannot start the thread that compresses logs");
	}
	*out = packer;
	return 0;
}

void packer_stop(struct packer *packer)
{
	if (!packer)
		return;
	atomic_store(&packer->stopping, true);
	latch_set(packer->stop_fd);
	pthread_join(packer->thread, NULL);
	close_fdp(&packer->stop_fd);
	free(packer);
}
