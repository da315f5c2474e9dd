/*
 * Copies that db_backup made of an embedded database: putting one back, and what is left of those
 * that were never finished.
 */
#pragma once

#include <stdint.h>
#include "base/error.h"
#include "base/id.h"

struct restored {
	int64_t version;       /* of its schema; older ones are migrated when the server opens it */
	char node_id[ID_SIZE]; /* the node that used it last; "" when there was none */
	int64_t boot_epoch;
};

/*
 * Copies the file beside its new place and looks at the copy: that it is whole (integrity and
 * references), ours, and of no newer schema (ERR_DB_SCHEMA). Nothing is called a database before
 * that: `commit` gives it its name. The backup itself is only read.
 */
int db_restore_prepare(const char *backup_path, const char *to_path, struct restored *found,
		       struct error *err);
int db_restore_commit(const char *to_path, struct error *err);
/* The name of the copy until then: to_path with this behind it. */
#define DB_RESTORING ".restoring"

/*
 * Removes from the directory what killed backups have left half-made and nobody has written to for
 * that long. Only files of our own name and user. Trouble is logged and costs nothing but the room.
 */
size_t db_backup_sweep(const char *path, int64_t idle_s);
