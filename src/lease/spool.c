/*
 * Orphans: what a provider has and no lease explains. Each becomes a place in the cleanup queue. If
 * the database refuses even that, it is written to a file of its own, durable and atomically named
 * after the provider's name for it, and taken into the database by a later sweep or start. The
 * number of files is bounded; beyond it the log is the last witness.
 */
#include "lease/lease_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/fd.h"
#include "base/sha256.h"
#include "base/log.h"
#include "base/text.h"

#define SPOOL_MAX_FILES 256
#define SPOOL_MAX_BYTES (1 << 20)
#define SPOOL_SUFFIX ".json"

static int revive_orphan(struct tx *tx, struct leases *leases, const struct orphan *orphan,
			 struct place *place, int64_t now, struct error *err)
{
	/* Any other state is somebody's, or in the queue already. */
	if (place->state != PLACE_GONE)
		return 0;
	if (place_enter_cleanup(place, ACTION_DESTROY, orphan->reason, now, err) < 0)
		return -1;
	place->updated_at = now;
	place_set_node(place, &leases->node);
	return place_row_save(tx, place, err);
}

int orphan_write_tx(struct tx *tx, struct leases *leases, const struct orphan *orphan, int64_t now,
		    struct error *err)
{
	_cleanup_place_ struct place place = { 0 };
	int r = place_row_by_ref(tx, orphan->place.provider_ref, &place, err);

	if (r < 0 ||
	    (id_is_set(orphan->lease_id) && intent_row_delete(tx, orphan->lease_id, err) < 0))
		return -1;
	if (r > 0)
		return revive_orphan(tx, leases, orphan, &place, now, err);
	place_copy(&place, &orphan->place);
	if (!id_is_set(place.id))
		id_new(place.id);
	place.state = PLACE_CLEANUP;
	place.holder_lease[0] = '\0';
	place.cleanup_action = xstrdup(ACTION_DESTROY);
	place.cleanup_reason = xstrdup(orphan->reason);
	place.cleanup_next_at = place.created_at = place.updated_at = now;
	place_set_node(&place, &leases->node);
	return place_row_insert(tx, &place, err);
}

/* How many there are; names of at most twice as many as there should be. */
static int list_files(struct leases *leases, char ***names, struct error *err)
{
	int fd = openat(leases->spool_dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;
	int count = 0;

	if (!dir) {
		error_errno(err, errno, "reading the spool");
		close_fdp(&fd);
		return -1;
	}
	while ((entry = readdir(dir))) {
		if (entry->d_name[0] == '.' || !str_ends(entry->d_name, SPOOL_SUFFIX))
			continue;
		if (count < 2 * SPOOL_MAX_FILES)
			strv_push(names, xstrdup(entry->d_name));
		count++;
	}
	closedir(dir);
	return count;
}

static char *file_name(const char *provider_ref)
{
	char hash[SHA256_HEX_SIZE];

	sha256_hex(provider_ref, strlen(provider_ref), hash);
	return xasprintf("%s%s", hash, SPOOL_SUFFIX);
}

static json_t *orphan_json(const struct orphan *orphan, int64_t now)
{
	const struct place *p = &orphan->place;
	json_t *o = json_object();

	json_put_int(o, "version", 1);
	json_put_str(o, "leaseId", orphan->lease_id);
	json_put_str(o, "placeId", p->id);
	json_put_str(o, "companyId", p->company_id);
	json_put_str(o, "environmentId", p->environment_id);
	json_put_str(o, "driver", driver_kind_name(p->driver));
	json_put_str(o, "provider", p->provider);
	json_put_str(o, "providerRef", p->provider_ref);
	json_put_str(o, "fencing", fencing_name(p->fencing));
	json_put_bool(o, "discoverable", p->discoverable);
	json_put_new(o, "config", place_config_stored(p->config));
	json_put_ref(o, "metadata", p->metadata);
	json_put_str(o, "reason", orphan->reason);
	json_put_int(o, "at", now);
	return o;
}

int spool_put(struct leases *leases, const struct orphan *orphan, struct error *err)
{
	_cleanup_free_ char *name = file_name(orphan->place.provider_ref);
	_cleanup_json_ json_t *o = orphan_json(orphan, clock_now(leases->clock));
	_cleanup_free_ char *text = json_text(o);
	_cleanup_strv_ char **names = NULL;
	int files = list_files(leases, &names, err);

	if (files < 0)
		return -1;
	if (files >= SPOOL_MAX_FILES)
		return error_set(err, ERR_DISK_FULL, "the spool holds %d orphans already", files);
	if (strlen(text) > SPOOL_MAX_BYTES)
		return error_set(err, ERR_TOO_LARGE, "the record of the orphan is too large");
	return file_replace(leases->spool_dirfd, name, text, strlen(text), 0600, err);
}

/* What is in the file is checked like anything else that lay on a disk for a while. */
static int read_orphan(const json_t *o, struct orphan *orphan, struct error *err)
{
	struct place *p = &orphan->place;
	const char *provider = json_str_nonblank(o, "provider");
	const char *ref = json_str_nonblank(o, "providerRef");
	const char *company = json_str(o, "companyId");

	if (json_int(o, "version", 0) != 1 || !provider || !ref || !id_is_valid(company) ||
	    !driver_kind_parse(json_str(o, "driver") ? json_str(o, "driver") : "", &p->driver) ||
	    !fencing_parse(json_str(o, "fencing") ? json_str(o, "fencing") : "", &p->fencing) ||
	    !json_object_at(o, "config") || !json_object_at(o, "metadata"))
		return error_set(err, ERR_VALIDATION, "not a record of an orphan");
	p->provider = xstrdup(provider);
	p->provider_ref = xstrdup(ref);
	p->scope = xstrdup("");
	p->fingerprint = xstrdup("");
	p->discoverable = json_bool(o, "discoverable", false);
	p->config.json = json_deep_copy(json_object_at(o, "config"));
	p->metadata = json_deep_copy(json_object_at(o, "metadata"));
	id_copy(p->company_id, company);
	id_copy(p->environment_id,
		id_is_valid(json_str(o, "environmentId")) ? json_str(o, "environmentId") : NULL);
	id_copy(orphan->lease_id,
		id_is_valid(json_str(o, "leaseId")) ? json_str(o, "leaseId") : NULL);
	orphan->reason = json_str(o, "reason") ? json_str(o, "reason") : "from the spool";
	return 0;
}

struct flushing {
	struct leases *leases;
	struct orphan orphan;
	int64_t now;
};

SQL(ENVIRONMENT_THERE, "SELECT 1 FROM environments WHERE id = $1");

static int flush_tx(struct tx *tx, void *arg, struct error *err)
{
	struct flushing *f = arg;
	int64_t there;

	/* It may have been deleted while the orphan was on disk; the orphan still has to go. */
	if (number_tx(tx, &ENVIRONMENT_THERE, &there, err, B_TEXT(f->orphan.place.environment_id)) <
	    0)
		return -1;
	if (!there)
		f->orphan.place.environment_id[0] = '\0';
	return orphan_write_tx(tx, f->leases, &f->orphan, f->now, err);
}

static int flush_file(struct leases *leases, const char *name, struct error *err)
{
	_cleanup_buf_ struct buf text = { 0 };
	_cleanup_json_ json_t *o = NULL;
	struct flushing f = { .leases = leases, .now = clock_now(leases->clock) };
	int r;

	if (file_read(leases->spool_dirfd, name, &text, SPOOL_MAX_BYTES, err) < 0)
		return -1;
	o = json_parse(buf_str(&text), text.len, err);
	if (!o || read_orphan(o, &f.orphan, err) < 0)
		return -1;
	r = DB_WRITE(leases->db, "lease.unspool", flush_tx, &f, err);
	place_clear(&f.orphan.place);
	if (r < 0)
		return -1;
	/* Only now: a crash in between writes the same row again, which changes nothing. */
	if (unlinkat(leases->spool_dirfd, name, 0) < 0 && errno != ENOENT)
		return error_errno(err, errno, "removing the spooled orphan %s", name);
	return dir_sync(leases->spool_dirfd, err);
}

int spool_flush(struct leases *leases, struct error *err)
{
	_cleanup_strv_ char **names = NULL;
	int result = 0;

	if (list_files(leases, &names, err) < 0)
		return -1;
	for (char **name = names; name && *name; name++) {
		if (flush_file(leases, *name, err) < 0)
			result = error_wrap(err, "spooled orphan %s", *name);
	}
	return result;
}

void spool_audit(struct leases *leases, json_t *list)
{
	_cleanup_strv_ char **names = NULL;
	_cleanup_error_ struct error err = { 0 };

	if (list_files(leases, &names, &err) < 0)
		strv_push(&names, xstrdup(err.message));
	for (char **name = names; name && *name; name++) {
		json_t *entry = json_object();

		json_put_str(entry, "kind", "spool");
		json_put_str(entry, "id", *name);
		json_put_str(entry, "where", "spool");
		json_put_str(entry, "reason", "the database has not taken this orphan yet");
		json_put_str(entry, "since", NULL);
		json_array_append_new(list, entry);
	}
}
