#include "exec/exec_pad.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/log.h"

#define SLOT_BYTES 4096 /* a page: one write is done or not */

int pad_open(struct pad *pad, int dirfd, const char *name, struct error *err)
{
	*pad = (struct pad){ .fd = openat(dirfd, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW,
					  0600) };
	if (pad->fd < 0)
		return error_errno(err, errno, "cannot open the records of execs that begin");
	pthread_mutex_init(&pad->lock, NULL);
	return 0;
}

void pad_close(struct pad *pad)
{
	if (pad->fd < 0)
		return;
	pthread_mutex_destroy(&pad->lock);
	close_fdp(&pad->fd);
}

static int take_slot(struct pad *pad)
{
	int slot = -1;

	pthread_mutex_lock(&pad->lock);
	if (~pad->used) {
		slot = __builtin_ctzll(~pad->used);
		pad->used |= UINT64_C(1) << slot;
	}
	pthread_mutex_unlock(&pad->lock);
	return slot;
}

static void free_slot(struct pad *pad, int slot)
{
	pthread_mutex_lock(&pad->lock);
	pad->used &= ~(UINT64_C(1) << slot);
	pthread_mutex_unlock(&pad->lock);
}

static int wipe_slot(struct pad *pad, int slot, struct error *err)
{
	static const char BLANK[SLOT_BYTES];

	return fd_pwrite_all(pad->fd, BLANK, sizeof(BLANK), (off_t)slot * SLOT_BYTES, err);
}

int pad_put(struct pad *pad, const json_t *record)
{
	_cleanup_free_ char *text = json_text(record);
	size_t size = strlen(text) + 1;
	int slot = size <= SLOT_BYTES ? take_slot(pad) : -1;

	if (slot >= 0 && fd_pwrite_all(pad->fd, text, size, (off_t)slot * SLOT_BYTES, NULL) < 0) {
		pad_clear(pad, slot);
		return -1;
	}
	return slot;
}

void pad_clear(struct pad *pad, int slot)
{
	_cleanup_error_ struct error err = { 0 };

	/* What stays there would only be taken up once more, and found to have ended. */
	if (wipe_slot(pad, slot, &err) < 0)
		log_warn("a record of an exec that has begun could not be cleared: %s",
			 err.message);
	free_slot(pad, slot);
}

/* *record is NULL when nothing was written there, or not the whole of it. */
static int read_slot(const struct pad *pad, int slot, json_t **record, struct error *err)
{
	char text[SLOT_BYTES];
	ssize_t n = pread(pad->fd, text, sizeof(text), (off_t)slot * SLOT_BYTES);

	*record = NULL;
	if (n < 0)
		return error_errno(err, errno, "cannot read the records of execs that began");
	if (n == 0 || !text[0])
		return 0;
	*record = json_parse(text, strnlen(text, (size_t)n), NULL);
	if (*record && !json_is_object(*record)) {
		json_decref(*record);
		*record = NULL;
	}
	return 0;
}

int pad_take(struct pad *pad, pad_visit_fn *visit, void *arg, struct error *err)
{
	for (int slot = 0; slot < PAD_SLOTS; slot++) {
		_cleanup_json_ json_t *record = NULL;

		if (read_slot(pad, slot, &record, err) < 0)
			return -1;
		if (record && (visit(arg, record, err) < 0 || wipe_slot(pad, slot, err) < 0))
			return -1;
	}
	return 0;
}
