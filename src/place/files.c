#include "place/files.h"

#include <inttypes.h>
#include <string.h>
#include "base/text.h"
#include "place/place_files.h"
#include "place/places.h"
#include "place/shell/shell_internal.h"

#define PATH_MAX_LEN 4095
#define LIST_MAX 1000

void file_info_clear(struct file_info *info)
{
	free(info->path);
	free(info->target);
	*info = (struct file_info){ 0 };
}

json_t *file_info_json(const struct file_info *info)
{
	json_t *object = json_object();
	char mode[8];

	snprintf(mode, sizeof(mode), "%04o", (unsigned)info->mode & 07777);
	json_put_str(object, "path", info->path);
	json_put_str(object, "type", info->type);
	json_put_str(object, "mode", mode);
	json_put_int(object, "size", info->size);
	json_put_time(object, "mtime", info->mtime_ms);
	json_put_int(object, "uid", info->uid);
	json_put_int(object, "gid", info->gid);
	if (info->target)
		json_put_str(object, "target", info->target);
	return object;
}

void file_info_take(const struct wire_file_info *m, const char *path, struct file_info *out)
{
	*out = (struct file_info){
		.path = xstrdup(path),
		.type = wire_file_type_name(m->type),
		.mode = m->mode,
		.size = (int64_t)MIN_OF(m->size, (uint64_t)INT64_MAX),
		.mtime_ms = (int64_t)(m->mtime_ns / 1000000),
		.uid = m->uid,
		.gid = m->gid,
		.target = xstrdup(m->target),
	};
}

/* The relay of a whole host wants absolute paths, any other relative ones; callers say either. */
char *place_file_path(const struct open_place *place, const char *path, struct error *err)
{
	size_t len;

	if (!path || strlen(path) > PATH_MAX_LEN - 2) {
		error_set(err, ERR_BAD_PATH, "a path has at most %d bytes", PATH_MAX_LEN - 2);
		return NULL;
	}
	path += strspn(path, "/");
	len = strlen(path);
	while (len > 0 && path[len - 1] == '/')
		len--;
	if (len == 0)
		return xstrdup(place->root ? "." : "/");
	return xasprintf("%s%.*s", place->root ? "" : "/", (int)len, path);
}

struct open_place *place_file_reach(const struct place_ref *ref, int64_t deadline,
				    struct link **link, struct error *err)
{
	struct open_place *place = place_admit(ref->places, ref->place_id, ref->generation, err);

	*link = NULL;
	if (place && place_link(place, true, deadline, link, err) < 0) {
		place_unref(place);
		return NULL;
	}
	return place;
}

struct open_place *place_file_shell(const struct place_ref *ref)
{
	struct open_place *place = place_admit(ref->places, ref->place_id, ref->generation, NULL);

	if (!place || place_is_shell(place))
		return place;
	place_unref(place);
	return NULL;
}

/* A request about one path (or two) that was put into `msg` at the given addresses. */
struct file_call {
	enum wire_type type, last;
	void *msg;
	const char *path, **to;
	const char *path2, **to2;
	link_answer_fn *each;
	void *arg;
};

static int file_ask(const struct place_ref *ref, const struct file_call *c, struct error *err)
{
	int64_t deadline = boottime_ms() + FILE_WAIT_MS;
	_cleanup_link_ struct link *link = NULL;
	_cleanup_place_ struct open_place *place = place_file_reach(ref, deadline, &link, err);
	_cleanup_free_ char *one = NULL, *two = NULL;

	if (!place)
		return -1;
	one = place_file_path(place, c->path, err);
	if (!one)
		return -1;
	*c->to = one;
	if (c->to2) {
		two = place_file_path(place, c->path2, err);
		if (!two)
			return -1;
		*c->to2 = two;
	}
	return link_call(link, c->type, c->msg, c->last, c->each, c->arg, deadline, err);
}

struct stat_answer {
	const char *path;
	struct file_info *out;
};

static int take_info(void *arg, const struct wire_message *m, struct error *err)
{
	struct stat_answer *a = arg;

	if (m->type != WIRE_FILE_INFO)
		return error_set(err, ERR_PROTOCOL, "%s about a file", wire_type_name(m->type));
	file_info_clear(a->out);
	file_info_take(&m->file_info, a->path, a->out);
	return 0;
}

int place_file_stat(const struct place_ref *ref, const char *path, struct file_info *out,
		    struct error *err)
{
	_cleanup_place_ struct open_place *shell = place_file_shell(ref);
	struct wire_file_stat m = { 0 };
	struct stat_answer answer = { path, out };
	struct file_call call = {
		.type = WIRE_FILE_STAT,
		.last = WIRE_FILE_INFO,
		.msg = &m,
		.path = path,
		.to = &m.path,
		.each = take_info,
		.arg = &answer,
	};

	*out = (struct file_info){ 0 };
	if (shell)
		return shell_file_stat(shell, path, out, err);
	if (file_ask(ref, &call, err) == 0)
		return 0;
	file_info_clear(out);
	return -1;
}

struct list_answer {
	json_t *entries;
	uint64_t cursor;
};

static int take_entry(void *arg, const struct wire_message *m, struct error *err)
{
	struct list_answer *a = arg;
	struct file_info info;

	if (m->type == WIRE_FILE_PAGE) {
		a->cursor = m->file_page.cursor;
		return 0;
	}
	if (m->type != WIRE_FILE_INFO || !m->file_info.name)
		return error_set(err, ERR_PROTOCOL, "%s in a listing", wire_type_name(m->type));
	if (json_array_size(a->entries) >= LIST_MAX)
		return error_set(err, ERR_PROTOCOL, "more entries than were asked for");
	file_info_take(&m->file_info, m->file_info.name, &info);
	json_array_append_new(a->entries, file_info_json(&info));
	file_info_clear(&info);
	return 0;
}

/* Cursors are the relay's numbers: 64 bits, of which some file systems use all. */
static bool parse_cursor(const char *text, uint64_t *out)
{
	uint8_t bytes[8];

	if (!text || !text[0]) {
		*out = 0;
		return true;
	}
	if (!hex_decode(bytes, text, sizeof(bytes)))
		return false;
	*out = get_le64(bytes);
	return true;
}

json_t *place_file_list(const struct place_ref *ref, const char *path, const char *cursor,
			int64_t limit, struct error *err)
{
	_cleanup_place_ struct open_place *shell = place_file_shell(ref);
	struct wire_file_list m = {
		.limit = (uint32_t)(limit > 0 && limit < LIST_MAX ? limit : LIST_MAX),
	};
	_cleanup_json_ json_t *entries = json_array();
	struct list_answer answer = { .entries = entries };
	struct file_call call = {
		.type = WIRE_FILE_LIST,
		.last = WIRE_FILE_PAGE,
		.msg = &m,
		.path = path,
		.to = &m.path,
		.each = take_entry,
		.arg = &answer,
	};
	uint8_t bytes[8];
	char next[17];
	json_t *page;

	if (shell)
		return shell_file_list(shell, path, cursor, limit, err);
	if (!parse_cursor(cursor, &m.cursor)) {
		error_set(err, ERR_VALIDATION, "this is not a cursor of a listing");
		return NULL;
	}
	if (file_ask(ref, &call, err) < 0)
		return NULL;
	put_le64(bytes, answer.cursor);
	hex_encode(next, bytes, sizeof(bytes));
	page = json_object();
	json_put_ref(page, "entries", entries);
	json_put_str(page, "nextCursor", answer.cursor ? next : NULL);
	return page;
}

static bool mode_is_valid(uint32_t mode, struct error *err)
{
	if (mode <= 07777)
		return true;
	error_set(err, ERR_VALIDATION, "%o is not a file mode", (unsigned)mode);
	return false;
}

int place_file_mkdir(const struct place_ref *ref, const char *path, uint32_t mode, bool parents,
		     struct error *err)
{
	_cleanup_place_ struct open_place *shell = place_file_shell(ref);
	struct wire_file_mkdir m = { .mode = mode, .parents = parents };
	struct file_call call = {
		.type = WIRE_FILE_MKDIR, .last = WIRE_DONE, .msg = &m, .path = path, .to = &m.path
	};

	if (!mode_is_valid(mode, err))
		return -1;
	return shell ? shell_file_mkdir(shell, path, mode, parents, err)
		     : file_ask(ref, &call, err);
}

int place_file_rename(const struct place_ref *ref, const char *from, const char *to,
		      bool no_clobber, struct error *err)
{
	_cleanup_place_ struct open_place *shell = place_file_shell(ref);
	struct wire_file_rename m = { .no_replace = no_clobber };
	struct file_call call = { .type = WIRE_FILE_RENAME,
				  .last = WIRE_DONE,
				  .msg = &m,
				  .path = from,
				  .to = &m.from,
				  .path2 = to,
				  .to2 = &m.to };

	return shell ? shell_file_rename(shell, from, to, no_clobber, err)
		     : file_ask(ref, &call, err);
}

int place_file_remove(const struct place_ref *ref, const char *path, bool recursive,
		      struct error *err)
{
	_cleanup_place_ struct open_place *shell = place_file_shell(ref);
	struct wire_file_remove m = { .recursive = recursive };
	struct file_call call = {
		.type = WIRE_FILE_REMOVE, .last = WIRE_DONE, .msg = &m, .path = path, .to = &m.path
	};

	return shell ? shell_file_remove(shell, path, recursive, err) : file_ask(ref, &call, err);
}

int place_file_chmod(const struct place_ref *ref, const char *path, uint32_t mode,
		     struct error *err)
{
	_cleanup_place_ struct open_place *shell = place_file_shell(ref);
	struct wire_file_chmod m = { .mode = mode };
	struct file_call call = {
		.type = WIRE_FILE_CHMOD, .last = WIRE_DONE, .msg = &m, .path = path, .to = &m.path
	};

	if (!mode_is_valid(mode, err))
		return -1;
	return shell ? shell_file_chmod(shell, path, mode, err) : file_ask(ref, &call, err);
}
