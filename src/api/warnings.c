#include "api/server.h"

#include <limits.h>
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"

#define DRIFT_MS ((int64_t)5000)
#define DISK_LOW_BYTES ((int64_t)64 << 20)

static char *clock_moved(struct server *server)
{
	int64_t drift = server->clock.drift_ms(&server->clock);

	if (drift <= DRIFT_MS && drift >= -DRIFT_MS)
		return NULL;
	return xasprintf("the wall clock was moved by %lld ms since the server started; times are "
			 "recorded as if it had not been",
			 (long long)drift);
}

static char *disk_is_low(struct server *server)
{
	int64_t bytes = dir_free_bytes(server->data_dirfd);

	if (bytes < 0 || bytes >= DISK_LOW_BYTES)
		return NULL;
	return xasprintf("only %lld MB are free where the data directory is",
			 (long long)(bytes >> 20));
}

static char *files_are_few(struct server *server)
{
	if (server->max_runs >= MIN_OF(server->options.max_runs, INT_MAX))
		return NULL;
	return xasprintf("only %d runs at a time instead of %lld: the limit of open files (ulimit "
			 "-Hn) allows no more",
			 server->max_runs, (long long)server->options.max_runs);
}

/* Each says in a sentence what is wrong, or NULL. */
static char *(*const CHECKS[WARNINGS_COUNT])(struct server *server) = { clock_moved, disk_is_low,
									files_are_few };

json_t *server_warnings(struct server *server)
{
	json_t *warnings = json_array();

	for (size_t i = 0; i < ARRAY_SIZE(CHECKS); i++) {
		_cleanup_free_ char *text = CHECKS[i](server);

		if (text)
			json_array_append_new(warnings, json_string(text));
	}
	if (server->complaints)
		json_array_extend(warnings, server->complaints);
	return warnings;
}

void server_log_warnings(struct server *server, bool logged[WARNINGS_COUNT])
{
	for (size_t i = 0; i < ARRAY_SIZE(CHECKS); i++) {
		_cleanup_free_ char *text = CHECKS[i](server);

		if (text && !logged[i])
			log_warn("%s", text);
		logged[i] = text;
	}
}
