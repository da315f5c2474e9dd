#include "cli/api.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PIECE ((size_t)1 << 20) /* of one request */

struct feeder {
	struct api *api;
	char *data_path, *end_path;
	char *piece;
	size_t len, sent;
};

static ssize_t next_bytes(void *arg, char *buf, size_t max)
{
	struct feeder *feeder = arg;
	size_t n = MIN_OF(max, feeder->len - feeder->sent);

	memcpy(buf, feeder->piece + feeder->sent, n);
	feeder->sent += n;
	return (ssize_t)n;
}

/* What is there now, but at least one byte. 0 at the end. */
static ssize_t read_piece(struct feeder *feeder)
{
	struct pollfd more = { .fd = STDIN_FILENO, .events = POLLIN };

	feeder->len = feeder->sent = 0;
	do {
		ssize_t n = read(STDIN_FILENO, feeder->piece + feeder->len, PIECE - feeder->len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		feeder->len += (size_t)n;
	} while (feeder->len < PIECE && (feeder->len == 0 || poll(&more, 1, 0) > 0));
	return (ssize_t)feeder->len;
}

static int send_piece(struct feeder *feeder, bool end, struct error *err)
{
	const struct api_upload upload = { .method = "POST",
					   .path = end ? feeder->end_path : feeder->data_path,
					   .length = (int64_t)feeder->len,
					   .read = next_bytes,
					   .arg = feeder };

	return api_upload(feeder->api, &upload, NULL, err);
}

static void *feed(void *arg)
{
	struct feeder *feeder = arg;
	_cleanup_error_ struct error err = { 0 };
	int r = 0;

	while (r == 0 && read_piece(feeder) > 0)
		r = send_piece(feeder, false, &err);
	if (r == 0)
		r = send_piece(feeder, true, &err);
	/* A command that ends without reading all of its input is nothing to talk about. */
	if (r < 0 && err.code != ERR_CONFLICT && err.code != ERR_NOT_FOUND)
		fprintf(stderr, "berth: standard input ended early: %s\n", err.message);
	api_close(feeder->api);
	free(feeder->data_path);
	free(feeder->end_path);
	free(feeder->piece);
	free(feeder);
	return NULL;
}

int feed_stdin(struct cli *cli, const char *exec_id, struct error *err)
{
	struct feeder *feeder = xcalloc(1, sizeof(*feeder));
	sigset_t all, before;
	pthread_t thread;

	if (api_connect(cli, false, &feeder->api, err) < 0) {
		free(feeder);
		return -1;
	}
	feeder->data_path = xasprintf("/api/execs/%s/stdin", exec_id);
	feeder->end_path = xasprintf("/api/execs/%s/stdin?end=1", exec_id);
	feeder->piece = xmalloc(PIECE);
	/* Signals are the main thread's business. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);

	int failed = pthread_create(&thread, NULL, feed, feeder);

	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (failed)
		return error_errno(err, failed, "cannot read standard input");
	pthread_detach(thread);
	return 0;
}
