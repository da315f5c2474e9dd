#include "store/sqlite_frames.h"

#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include "base/mem.h"
#include "store/sqlite_wal.h"

#define NAME "berth-frames"
#define HEADER_BYTES 24
/* What has more is written in parts: SQLite's own file takes less than 128 KiB at a time. */
#define HELD_MAX (31 * WAL_FRAME_BYTES)

/* The WAL of one connection; SQLite's own file lies behind it. */
struct frames_file {
	sqlite3_file file;
	char *held; /* not in the file yet */
	int held_bytes;
	sqlite3_int64 end;  /* where what was written, held or not, ends; 0: unknown */
	bool in_frame;      /* a header is held, its page comes next */
	bool is_last_frame; /* of its transaction */
	bool at_commit;     /* nothing was written or synced since a transaction's last frame */
	bool commits_unsynced;
};

static struct frames_file *frames_of(sqlite3_file *file)
{
	return (struct frames_file *)file;
}

static sqlite3_file *own_of(sqlite3_file *file)
{
	return (sqlite3_file *)(frames_of(file) + 1);
}

static int write_held(sqlite3_file *file)
{
	struct frames_file *f = frames_of(file);
	int bytes = f->held_bytes;
	int rc;

	if (bytes == 0)
		return SQLITE_OK;
	f->held_bytes = 0;
	rc = own_of(file)->pMethods->xWrite(own_of(file), f->held, bytes, f->end - bytes);
	if (rc != SQLITE_OK) {
		f->end = 0;
		f->in_frame = false;
	}
	return rc;
}

static int hold(sqlite3_file *file, const void *data, int bytes)
{
	struct frames_file *f = frames_of(file);
	int rc = f->held_bytes + bytes > HELD_MAX ? write_held(file) : SQLITE_OK;

	if (rc != SQLITE_OK)
		return rc;
	if (!f->held)
		f->held = xmalloc(HELD_MAX);
	memcpy(f->held + f->held_bytes, data, (size_t)bytes);
	f->held_bytes += bytes;
	f->end += bytes;
	return SQLITE_OK;
}

static int write_through(sqlite3_file *file, const void *data, int bytes, sqlite3_int64 at)
{
	struct frames_file *f = frames_of(file);
	int rc = write_held(file);

	if (rc == SQLITE_OK)
		rc = own_of(file)->pMethods->xWrite(own_of(file), data, bytes, at);
	f->end = rc == SQLITE_OK ? at + bytes : 0;
	f->in_frame = false;
	f->at_commit = false;
	return rc;
}

/* A frame's header names its page and, in the last one of a transaction, the database's length. */
static bool is_last(const void *header)
{
	static const uint8_t none[4];

	return memcmp((const uint8_t *)header + 4, none, sizeof(none)) != 0;
}

/*
 * Headers that are written anew, because a page that was in the WAL already has changed, do not lie
 * at the end and are not followed by a page: they go through.
 */
static int frames_write(sqlite3_file *file, const void *data, int bytes, sqlite3_int64 at)
{
	struct frames_file *f = frames_of(file);
	int rc;

	if (at == 0 || at != f->end || bytes > HELD_MAX || (!f->in_frame && bytes != HEADER_BYTES))
		return write_through(file, data, bytes, at);
	if (!f->in_frame)
		f->is_last_frame = is_last(data);
	f->in_frame = !f->in_frame;
	f->at_commit = !f->in_frame && f->is_last_frame;
	rc = hold(file, data, bytes);
	if (rc == SQLITE_OK && f->at_commit)
		rc = write_held(file);
	return rc;
}

static int frames_read(sqlite3_file *file, void *data, int bytes, sqlite3_int64 at)
{
	int rc = write_held(file);

	return rc == SQLITE_OK ? own_of(file)->pMethods->xRead(own_of(file), data, bytes, at) : rc;
}

static int frames_truncate(sqlite3_file *file, sqlite3_int64 size)
{
	int rc = write_held(file);

	return rc == SQLITE_OK ? own_of(file)->pMethods->xTruncate(own_of(file), size) : rc;
}

/*
 * A commit's own sync is the first behind its last frame. Those of a checkpoint, which may follow
 * at once, and of a WAL that begins anew keep the database whole.
 */
static int frames_sync(sqlite3_file *file, int flags)
{
	struct frames_file *f = frames_of(file);
	bool is_commit = f->at_commit;
	int rc = write_held(file);

	f->at_commit = false;
	if (rc != SQLITE_OK || (is_commit && f->commits_unsynced))
		return rc;
	return own_of(file)->pMethods->xSync(own_of(file), flags);
}

static int frames_size(sqlite3_file *file, sqlite3_int64 *size)
{
	int rc = write_held(file);

	return rc == SQLITE_OK ? own_of(file)->pMethods->xFileSize(own_of(file), size) : rc;
}

/* What is still held was never committed. */
static int frames_close(sqlite3_file *file)
{
	free(steal(frames_of(file)->held));
	return own_of(file)->pMethods->xClose(own_of(file));
}

static int frames_lock(sqlite3_file *file, int level)
{
	return own_of(file)->pMethods->xLock(own_of(file), level);
}

static int frames_unlock(sqlite3_file *file, int level)
{
	return own_of(file)->pMethods->xUnlock(own_of(file), level);
}

static int frames_is_reserved(sqlite3_file *file, int *out)
{
	return own_of(file)->pMethods->xCheckReservedLock(own_of(file), out);
}

static int frames_control(sqlite3_file *file, int what, void *arg)
{
	return own_of(file)->pMethods->xFileControl(own_of(file), what, arg);
}

static int frames_sector(sqlite3_file *file)
{
	return own_of(file)->pMethods->xSectorSize(own_of(file));
}

static int frames_device(sqlite3_file *file)
{
	return own_of(file)->pMethods->xDeviceCharacteristics(own_of(file));
}

static const sqlite3_io_methods methods = {
	.iVersion = 1, /* shared memory is the database's, not the WAL's */
	.xClose = frames_close,
	.xRead = frames_read,
	.xWrite = frames_write,
	.xTruncate = frames_truncate,
	.xSync = frames_sync,
	.xFileSize = frames_size,
	.xLock = frames_lock,
	.xUnlock = frames_unlock,
	.xCheckReservedLock = frames_is_reserved,
	.xFileControl = frames_control,
	.xSectorSize = frames_sector,
	.xDeviceCharacteristics = frames_device,
};

static int frames_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *out)
{
	sqlite3_vfs *own = vfs->pAppData;
	int rc;

	if (!(flags & SQLITE_OPEN_WAL))
		return own->xOpen(own, name, file, flags, out);
	*frames_of(file) = (struct frames_file){ 0 };
	rc = own->xOpen(own, name, own_of(file), flags, out);
	file->pMethods = own_of(file)->pMethods ? &methods : NULL;
	return rc;
}

static sqlite3_vfs frames_vfs;

static void set_up(void)
{
	sqlite3_vfs *own = sqlite3_vfs_find(NULL);

	if (!own)
		return;
	frames_vfs = *own;
	frames_vfs.zName = NAME;
	frames_vfs.pNext = NULL;
	frames_vfs.pAppData = own; /* its own is used by its xOpen alone, which gets it */
	frames_vfs.szOsFile += (int)sizeof(struct frames_file);
	frames_vfs.xOpen = frames_open;
	sqlite3_vfs_register(&frames_vfs, 0);
}

const char *sqlite_frames_vfs(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, set_up);
	return sqlite3_vfs_find(NAME) ? NAME : NULL;
}

void sqlite_frames_wait(sqlite3 *db, bool for_disk)
{
	sqlite3_file *file = NULL;

	if (sqlite3_file_control(db, "main", SQLITE_FCNTL_JOURNAL_POINTER, &file) != SQLITE_OK)
		return;
	/* Without a WAL it is another file, which is always synced. */
	if (file && file->pMethods == &methods)
		frames_of(file)->commits_unsynced = !for_disk;
}
