/*
 * Writing trees. Records are collected and sent in portions; long content goes past the collection
 * straight to the connection.
 */
#include <string.h>
#include "place/tree_flow.h"

/* Content of at least this length is sent from where it is. */
#define LONG_CONTENT ((size_t)64 << 10)
/* So much may be unanswered. */
#define EXPECTED_MAX ((size_t)8 << 20)

struct tree_writer {
	struct tree_flow flow;
	tree_entry_fn *written;
	void *arg;
	struct buf expected; /* what is to be answered: type, path, NUL; from expected_pos on */
	size_t expected_pos;
	bool in_file;
	uint64_t left;   /* bytes the file still lacks */
	struct buf file; /* its path */
	struct error failure;
};

static void writer_free(struct tree_writer *w)
{
	tree_flow_close(&w->flow);
	buf_free(&w->expected);
	buf_free(&w->file);
	error_clear(&w->failure);
	free(w);
}

/* The first failure is what every later call says. */
static int writer_failed(struct tree_writer *w, struct error *err)
{
	return error_set(err, w->failure.code, "%s", w->failure.message);
}

static int settled(struct tree_writer *w, int rc, struct error *err)
{
	return rc < 0 ? writer_failed(w, err) : 0;
}

static void expect(struct tree_writer *w, enum tree_type type, const char *path)
{
	char kind = (char)type;

	buf_append(&w->expected, &kind, 1);
	buf_append(&w->expected, path, strlen(path) + 1);
}

static size_t expected_bytes(const struct tree_writer *w)
{
	return w->expected.len - w->expected_pos;
}

static int take_written(void *arg, const struct record *record, struct error *err)
{
	struct tree_writer *w = arg;
	const char *expected = w->expected.data + w->expected_pos;
	struct tree_entry entry;

	if (record->kind != RECORD_ENTRY)
		return tree_flow_violated(&w->flow, err, "something else than a written file");
	if (tree_flow_entry(&w->flow, record, &entry, err) < 0)
		return -1;
	if (expected_bytes(w) == 0 || (char)entry.type != expected[0] ||
	    strlen(expected + 1) != entry.path_len ||
	    memcmp(expected + 1, entry.path, entry.path_len) != 0 || entry.flags != 0)
		return tree_flow_violated(&w->flow, err, "a file that was not to be written");
	w->expected_pos += entry.path_len + 2;
	if (w->expected_pos >= w->expected.len / 2) {
		buf_consume(&w->expected, w->expected_pos);
		w->expected_pos = 0;
	}
	return w->written ? w->written(w->arg, &entry, err) : 0;
}

int place_tree_put(const struct place_ref *place, const struct place_put *put,
		   struct tree_writer **out, struct error *err)
{
	struct wire_tree_put m = { .make_root = put->make_root, .only_ours = put->only_ours };
	struct tree_request request = {
		.type = WIRE_TREE_PUT,
		.msg = &m,
		.root = put->root,
		.root_field = &m.root,
		.credit_field = &m.credit,
	};
	struct tree_writer *w = xcalloc(1, sizeof(*w));

	*out = NULL;
	w->written = put->written;
	w->arg = put->arg;
	w->flow.take = take_written;
	w->flow.arg = w;
	if (tree_flow_open(&w->flow, place, &request, err) < 0) {
		writer_free(w);
		return -1;
	}
	*out = w;
	return 0;
}

/* Whether a record may follow now: no failure before, and no file that is not whole. */
static int ready(struct tree_writer *w, bool in_file, struct error *err)
{
	if (w->failure.code)
		return writer_failed(w, err);
	if (w->in_file != in_file)
		return error_set(err, ERR_INTERNAL,
				 in_file ? "no file was begun" : "a file is not complete");
	return 0;
}

static int send_portion(struct tree_writer *w, struct error *err)
{
	if (tree_flow_backlog(&w->flow) < TREE_PORTION)
		return 0;
	if (tree_flow_push(&w->flow, &w->failure) < 0)
		return writer_failed(w, err);
	while (expected_bytes(w) > EXPECTED_MAX)
		if (tree_flow_turn(&w->flow, true, &w->failure) < 0)
			return writer_failed(w, err);
	return 0;
}

static int check_entry(const struct tree_entry *entry, enum tree_type type, struct error *err)
{
	if (entry->type != type || !tree_path_is_valid(entry->path, entry->path_len))
		return error_set(err, ERR_BAD_PATH, "this is not an entry that can be written");
	return 0;
}

/* Only what the relay is to make of it travels. */
static void put_entry(struct tree_writer *w, const struct tree_entry *entry)
{
	struct tree_entry bare = {
		.path = entry->path,
		.path_len = entry->path_len,
		.type = entry->type,
		.mode = entry->mode & 0777,
		.size = entry->size,
		.mtime_ns = entry->mtime_ns,
		.target = entry->target,
		.target_len = entry->target_len,
	};

	tree_flow_put_entry(&w->flow, RECORD_PUT, &bare);
}

int tree_writer_dir(struct tree_writer *w, const struct tree_entry *entry, struct error *err)
{
	if (ready(w, false, err) < 0 || check_entry(entry, TREE_DIR, err) < 0)
		return -1;
	put_entry(w, entry);
	expect(w, TREE_DIR, entry->path);
	return send_portion(w, err);
}

int tree_writer_symlink(struct tree_writer *w, const struct tree_entry *entry, struct error *err)
{
	if (ready(w, false, err) < 0 || check_entry(entry, TREE_SYMLINK, err) < 0)
		return -1;
	put_entry(w, entry);
	return send_portion(w, err);
}

static int file_complete(struct tree_writer *w, struct error *err)
{
	w->in_file = false;
	return send_portion(w, err);
}

int tree_writer_file(struct tree_writer *w, const struct tree_entry *entry, struct error *err)
{
	if (ready(w, false, err) < 0 || check_entry(entry, TREE_FILE, err) < 0)
		return -1;
	put_entry(w, entry);
	buf_reset(&w->file);
	buf_append(&w->file, entry->path, entry->path_len);
	w->in_file = true;
	w->left = entry->size;
	if (w->left > 0)
		return 0;
	expect(w, TREE_FILE, w->file.data);
	return file_complete(w, err);
}

static bool is_zeros(const char *data, size_t len)
{
	return data[0] == 0 && memcmp(data, data + 1, len - 1) == 0;
}

static int put_content(struct tree_writer *w, const char *data, size_t len, struct error *err)
{
	uint8_t header[RECORD_HEADER_SIZE] = { [4] = RECORD_CONTENT };
	uint8_t number[8];

	if (len < LONG_CONTENT) {
		wire_record_append(&w->flow.out, RECORD_CONTENT, data, len);
		return send_portion(w, err);
	}
	/* What is nothing but zeros becomes a hole, as it most often was one. */
	if (is_zeros(data, len)) {
		put_le64(number, len);
		wire_record_append(&w->flow.out, RECORD_HOLE, number, sizeof(number));
		return send_portion(w, err);
	}
	put_le32(header, (uint32_t)len);
	buf_append(&w->flow.out, header, sizeof(header));
	return settled(w, tree_flow_push_long(&w->flow, data, len, &w->failure), err);
}

int tree_writer_data(struct tree_writer *w, const void *data, size_t len, struct error *err)
{
	const char *p = data;

	if (len == 0)
		return 0;
	if (ready(w, true, err) < 0)
		return -1;
	if (len > w->left)
		return error_set(err, ERR_INTERNAL, "more content than the file has");
	while (len > 0) {
		size_t n = MIN_OF(len, (size_t)RECORD_MAX);

		/* Its answer may come while the last of it is being sent. */
		if (n == w->left)
			expect(w, TREE_FILE, w->file.data);
		if (put_content(w, p, n, err) < 0)
			return -1;
		p += n;
		len -= n;
		w->left -= n;
	}
	return w->left == 0 ? file_complete(w, err) : 0;
}

int tree_writer_skip(struct tree_writer *w, struct error *err)
{
	if (ready(w, true, err) < 0)
		return -1;
	w->in_file = false;
	wire_record_append(&w->flow.out, RECORD_SKIP, NULL, 0);
	return send_portion(w, err);
}

int tree_writer_remove(struct tree_writer *w, const char *path, struct error *err)
{
	if (ready(w, false, err) < 0)
		return -1;
	if (!tree_path_is_valid(path, strlen(path)))
		return error_set(err, ERR_BAD_PATH, "this is not a path of a tree");
	wire_record_append(&w->flow.out, RECORD_REMOVE, path, strlen(path));
	return send_portion(w, err);
}

int tree_writer_commit(struct tree_writer *w, struct error *err)
{
	int rc = ready(w, false, err);

	if (rc == 0) {
		wire_record_append(&w->flow.out, RECORD_FINISH, NULL, 0);
		rc = tree_flow_finish(&w->flow, err);
	}
	if (rc == 0 && expected_bytes(w) > 0)
		rc = tree_flow_violated(&w->flow, err, "done before everything was written");
	writer_free(w);
	return rc;
}

void tree_writer_abandon(struct tree_writer *w)
{
	if (w)
		writer_free(w);
}
