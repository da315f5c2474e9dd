/*
 * Exits on disk, each written before it is told. Not synced: see spool.h. The file holds what was
 * not forgotten; when it has grown, it is written anew with only that.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include "base/fd.h"
#include "relay/exec.h"
#include "wire/place.h"

#define JOURNAL_MAX (256u << 10)

static void append_state(struct buf *out, const struct exec *exec)
{
	struct wire_exec_state state;

	exec_describe(exec, &state);
	wire_encode(out, 0, WIRE_EXEC_STATE, &state, NULL);
}

static int rewrite(struct relay *relay, struct error *err)
{
	_cleanup_buf_ struct buf all = { 0 };

	for (const struct exec *e = relay->execs; e; e = e->next)
		if (e->phase == WIRE_EXEC_EXITED)
			append_state(&all, e);
	if (ftruncate(relay->journal.fd, 0) < 0)
		return error_errno(err, errno, "shortening the journal");
	relay->journal.size = relay->journal.kept = all.len;
	return all.len ? fd_write_all(relay->journal.fd, all.data, all.len, err) : 0;
}

int journal_open(struct relay *relay, struct error *err)
{
	relay->journal.fd = openat(RELAY_FD_SPOOL, RELAY_JOURNAL_FILE,
				   O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (relay->journal.fd < 0)
		return error_errno(err, errno, "opening the journal");
	return 0;
}

int journal_record(struct relay *relay, const struct exec *exec, struct error *err)
{
	_cleanup_buf_ struct buf one = { 0 };

	/* Twice what was kept last time, or a full journal would be written anew for every exit. */
	if (relay->journal.size > JOURNAL_MAX && relay->journal.size > 2 * relay->journal.kept)
		return rewrite(relay, err);
	append_state(&one, exec);
	if (fd_write_all(relay->journal.fd, one.data, one.len, err) < 0)
		return -1;
	relay->journal.size += one.len;
	return 0;
}
