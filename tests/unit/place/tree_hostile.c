/*
 * Relays that are none: what they say about trees is believed only as far as it can be checked.
 */
#include "tree_place.h"
#include "impostor.h"
#include "wire/tree_record.h"

struct liar {
	struct impostor as;
	struct place_ref in;
	/* What it answers to a request about a tree: these records, and the end. */
	struct buf answer;
	bool endless; /* the answer is repeated for ever */
	atomic_ullong sent;
};

/* Never more than it may: credit is checked elsewhere. */
static void answer(struct liar *im, uint32_t stream)
{
	uint64_t credit = 4u << 20;
	struct frame frame;

	do {
		while (credit < im->answer.len)
			if (!impostor_next(&im->as, &frame))
				return;
			else if (frame.type == WIRE_CREDIT && frame.stream == stream)
				credit += get_le32(frame.payload + 6);
		frame_append(&im->as.conn.out, WIRE_DATA, 0, stream, im->answer.data,
			     (uint32_t)im->answer.len);
		credit -= im->answer.len;
		atomic_fetch_add(&im->sent, im->answer.len);
		if (!impostor_flush(&im->as))
			return;
	} while (im->endless);
	frame_append(&im->as.conn.out, WIRE_DATA, WIRE_END, stream, "", 0);
	impostor_flush(&im->as);
}

static void serve(struct impostor *as)
{
	struct frame frame;

	if (!impostor_greet(as))
		return;
	while (impostor_next(as, &frame))
		if (frame.type >= WIRE_TREE_SCAN && frame.type <= WIRE_TREE_GET)
			answer(container_of(as, struct liar, as), frame.stream);
}

static void liar_start(struct liar *im)
{
	impostor_start(&im->as);
	/* Whoever is quicker than the reconnector has the keeper make a real one. */
	wait_until(atomic_load(&im->as.greeted));
}

static int hostile_setup(void **state)
{
	struct liar *im = xcalloc(1, sizeof(*im));

	impostor_prepare(&im->as, serve);
	im->as.features = WIRE_FEATURE_TREES;
	im->in = (struct place_ref){ im->as.t->places, HOSTILE, 1 };
	*state = im;
	return 0;
}

static int hostile_teardown(void **state)
{
	struct liar *im = *state;
	int rc = impostor_end(&im->as);

	buf_free(&im->answer);
	free(im);
	return rc;
}

#define with_hostile(test) cmocka_unit_test_setup_teardown(test, hostile_setup, hostile_teardown)

/* Saying */

struct said {
	enum record_kind kind;
	const char *path; /* or text */
	enum tree_type type;
	uint32_t flags;
	uint64_t size; /* or number */
};

static void say(struct buf *out, const struct said *said)
{
	struct tree_entry entry = {
		.path = said->path,
		.path_len = said->path ? (uint32_t)strlen(said->path) : 0,
		.type = said->type,
		.flags = said->flags,
		.size = said->size,
		.target = said->type == TREE_SYMLINK ? "target" : NULL,
		.target_len = said->type == TREE_SYMLINK ? 6 : 0,
	};
	uint8_t number[8];
	size_t start;

	switch (said->kind) {
	case RECORD_ENTRY:
	case RECORD_ENDED:
	case RECORD_CHANGED:
		start = wire_record_begin(out, said->kind);
		tree_entry_encode(out, &entry);
		wire_record_end(out, start);
		break;
	case RECORD_HOLE:
		put_le64(number, said->size);
		wire_record_append(out, RECORD_HOLE, number, sizeof(number));
		break;
	default:
		wire_record_append(out, said->kind, said->path, entry.path_len);
	}
}

#define DIR_(path)                                                                                 \
	{                                                                                          \
		RECORD_ENTRY, path, TREE_DIR, 0, 0                                                 \
	}
#define FILE_(path, size)                                                                          \
	{                                                                                          \
		RECORD_ENTRY, path, TREE_FILE, 0, size                                             \
	}
#define LINK_(path)                                                                                \
	{                                                                                          \
		RECORD_ENTRY, path, TREE_SYMLINK, 0, 0                                             \
	}
#define ENDED_(path, size)                                                                         \
	{                                                                                          \
		RECORD_ENDED, path, TREE_FILE, 0, size                                             \
	}
#define CONTENT_(text)                                                                             \
	{                                                                                          \
		RECORD_CONTENT, text, TREE_NONE, 0, 0                                              \
	}
#define HOLE_(size)                                                                                \
	{                                                                                          \
		RECORD_HOLE, NULL, TREE_NONE, 0, size                                              \
	}
#define NONE_(path)                                                                                \
	{                                                                                          \
		RECORD_NONE, path, TREE_NONE, 0, 0                                                 \
	}
#define DONE_                                                                                      \
	{                                                                                          \
		RECORD_DONE, NULL, TREE_NONE, 0, 0                                                 \
	}
#define END_                                                                                       \
	{                                                                                          \
		0, NULL, TREE_NONE, 0, 0                                                           \
	}

/* A relay that breaks a rule is cut off; the next answer needs a new one. */
static int scan_of(struct liar *im, const struct said *said, struct kept *k, struct error *err)
{
	buf_reset(&im->answer);
	for (; said->kind; said++)
		say(&im->answer, said);
	return place_tree_scan(&im->in, &(struct place_scan){ .root = "", .max_entries = 4 }, keep,
			       k, err);
}

static const char *const two_paths[] = { "a", "b", NULL };

static bool next_path(void *arg, const char **path)
{
	size_t *i = arg;

	*path = two_paths[*i];
	return two_paths[(*i)++] != NULL;
}

static int ignore_entry(void *arg, const struct tree_entry *entry, struct error *err)
{
	(void)arg;
	(void)entry;
	(void)err;
	return 0;
}

static int ignore_data(void *arg, const void *data, size_t len, struct error *err)
{
	(void)arg;
	(void)data;
	(void)len;
	(void)err;
	return 0;
}

static int ignore_end(void *arg, const struct tree_entry *entry, bool changed, struct error *err)
{
	(void)changed;
	return ignore_entry(arg, entry, err);
}

static int get_of(struct liar *im, const struct said *said, struct error *err)
{
	size_t at = 0;
	struct place_get get = {
		.root = "",
		.next = next_path,
		.begin = ignore_entry,
		.data = ignore_data,
		.end = ignore_end,
		.arg = &at,
		.max_file = 1000,
	};

	buf_reset(&im->answer);
	for (; said->kind; said++)
		say(&im->answer, said);
	return place_tree_get(&im->in, &get, err);
}

static int hash_of(struct liar *im, const struct said *said, struct error *err)
{
	size_t at = 0;

	buf_reset(&im->answer);
	for (; said->kind; said++)
		say(&im->answer, said);
	return place_tree_hash(&im->in, "", next_path, ignore_entry, &at, err);
}

static int put_of(struct liar *im, const struct said *said, struct error *err)
{
	struct tree_entry a = { .path = "a", .path_len = 1, .type = TREE_DIR };
	struct tree_writer *w;

	buf_reset(&im->answer);
	for (; said->kind; said++)
		say(&im->answer, said);
	if (place_tree_put(&im->in, &(struct place_put){ .root = "" }, &w, err) < 0)
		return -1;
	if (tree_writer_dir(w, &a, err) < 0) {
		tree_writer_abandon(w);
		return -1;
	}
	return tree_writer_commit(w, err);
}

enum asked { SCAN, HASH, PUT, GET };

static int ask(struct liar *im, enum asked what, const struct said *said, struct error *err)
{
	struct kept k = { 0 };
	int rc = -1;

	switch (what) {
	case SCAN:
		rc = scan_of(im, said, &k, err);
		break;
	case HASH:
		rc = hash_of(im, said, err);
		break;
	case PUT:
		rc = put_of(im, said, err);
		break;
	case GET:
		rc = get_of(im, said, err);
	}
	buf_free(&k.bytes);
	return rc;
}

#define HASHED(path)                                                                               \
	{                                                                                          \
		RECORD_ENTRY, path, TREE_FILE, TREE_HAS_HASH, 1                                    \
	}

static const struct lie {
	const char *name;
	enum asked what;
	struct said said[8];
} lies[] = {
	{ "out of order", SCAN, { FILE_("b", 1), FILE_("a", 1), DONE_, END_ } },
	{ "twice", SCAN, { FILE_("a", 1), FILE_("a", 1), DONE_, END_ } },
	{ "dot dot", SCAN, { FILE_("..", 1), DONE_, END_ } },
	{ "up", SCAN, { DIR_("a"), FILE_("a/../../x", 1), DONE_, END_ } },
	{ "absolute", SCAN, { FILE_("/etc/passwd", 1), DONE_, END_ } },
	{ "empty segment", SCAN, { DIR_("a"), FILE_("a//b", 1), DONE_, END_ } },
	{ "in a link", SCAN, { LINK_("a"), FILE_("a/b", 1), DONE_, END_ } },
	{ "in a file", SCAN, { FILE_("a", 1), FILE_("a/b", 1), DONE_, END_ } },
	{ "in nothing", SCAN, { FILE_("a/b", 1), DONE_, END_ } },
	{ "too many",
	  SCAN,
	  { DIR_("a"), DIR_("b"), DIR_("c"), DIR_("d"), DIR_("e"), DONE_, END_ } },
	{ "of no type", SCAN, { { RECORD_ENTRY, "a", TREE_NONE, 0, 0 }, DONE_, END_ } },
	{ "content in a scan", SCAN, { CONTENT_("x"), DONE_, END_ } },
	{ "a server's word", SCAN, { { RECORD_PATH, "x", TREE_NONE, 0, 0 }, END_ } },
	{ "more behind the end", SCAN, { DONE_, DIR_("a"), END_ } },
	{ "no end", SCAN, { DIR_("a"), END_ } },
	{ "oversized directory", SCAN, { { RECORD_ENTRY, "a", TREE_DIR, 0, 7 }, DONE_, END_ } },
	{ "another path", HASH, { HASHED("b"), HASHED("a"), DONE_, END_ } },
	{ "one missing", HASH, { HASHED("a"), DONE_, END_ } },
	{ "one more", HASH, { HASHED("a"), HASHED("b"), HASHED("c"), DONE_, END_ } },
	{ "no hash", HASH, { FILE_("a", 1), HASHED("b"), DONE_, END_ } },
	{ "hash of a link", HASH, { LINK_("a"), HASHED("b"), DONE_, END_ } },
	{ "none of another", HASH, { NONE_("b"), NONE_("a"), DONE_, END_ } },
	{ "nothing written", PUT, { DONE_, END_ } },
	{ "another written", PUT, { DIR_("b"), DONE_, END_ } },
	{ "written otherwise", PUT, { FILE_("a", 0), DONE_, END_ } },
	{ "written twice", PUT, { DIR_("a"), DIR_("a"), DONE_, END_ } },
	{ "more than its size", GET, { FILE_("a", 3), CONTENT_("four"), END_ } },
	{ "a larger hole", GET, { FILE_("a", 3), HOLE_(UINT64_MAX), END_ } },
	{ "a hole behind", GET, { FILE_("a", 3), CONTENT_("xx"), HOLE_(2), END_ } },
	{ "less than its size", GET, { FILE_("a", 3), CONTENT_("xx"), ENDED_("a", 3), END_ } },
	{ "another size", GET, { FILE_("a", 2), CONTENT_("xx"), ENDED_("a", 3), END_ } },
	{ "above the limit", GET, { FILE_("a", 1001), END_ } },
	{ "end of another", GET, { FILE_("a", 0), ENDED_("b", 0), END_ } },
	{ "content of nothing", GET, { CONTENT_("x"), END_ } },
	{ "two at a time", GET, { FILE_("a", 1), FILE_("b", 1), END_ } },
	{ "a link", GET, { LINK_("a"), END_ } },
	{ "half of it", GET, { NONE_("a"), FILE_("b", 2), CONTENT_("x"), DONE_, END_ } },
	{ "hashed by them", GET, { HASHED("a"), END_ } },
};

static void lies_about_trees_are_seen(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(lies); i++) {
		_cleanup_error_ struct error err = { 0 };
		struct liar *im;
		void *own;

		(void)state;
		hostile_setup(&own);
		im = own;
		liar_start(im);
		if (ask(im, lies[i].what, lies[i].said, &err) == 0)
			fail_msg("%s: believed", lies[i].name);
		if (err.code != ERR_PROTOCOL)
			fail_msg("%s: %s: %s", lies[i].name, error_code_name(err.code),
				 err.message);
		hostile_teardown(&own);
	}
}

static void the_truth_is_believed(void **state)
{
	struct liar *im = *state;
	static const struct {
		enum asked what;
		struct said said[10];
	} truths[] = {
		{ SCAN, { DIR_("a"), DIR_("a/b"), FILE_("a.b", 1), LINK_("c"), DONE_, END_ } },
		{ HASH, { HASHED("a"), NONE_("b"), DONE_, END_ } },
		{ PUT, { DIR_("a"), DONE_, END_ } },
		{ GET,
		  { FILE_("a", 5), CONTENT_("xx"), HOLE_(3), ENDED_("a", 5), NONE_("b"), DONE_,
		    END_ } },
	};

	liar_start(im);
	for (size_t i = 0; i < ARRAY_SIZE(truths); i++)
		must(ask(im, truths[i].what, truths[i].said, why));
}

static void an_endless_tree_ends(void **state)
{
	struct liar *im = *state;
	_cleanup_error_ struct error err = { 0 };
	static const struct said same[] = { { RECORD_TICK, NULL, TREE_NONE, 0, 0 },
					    DIR_("a"),
					    END_ };

	im->endless = true;
	liar_start(im);
	assert_int_equal(ask(im, SCAN, same, &err), -1);
	assert_int_equal(err.code, ERR_PROTOCOL);
}

static void a_relay_that_only_ever_ticks_is_given_up(void **state)
{
	struct liar *im = *state;
	_cleanup_error_ struct error err = { 0 };
	struct said ticks[101] = { 0 };

	for (int i = 0; i < 100; i++)
		ticks[i].kind = RECORD_TICK;
	im->endless = true;
	liar_start(im);
	assert_int_equal(ask(im, HASH, ticks, &err), -1);
	assert_int_equal(err.code, ERR_PROTOCOL);
}

static void an_old_relay_is_told_apart(void **state)
{
	struct liar *im = *state;
	static const struct said nothing[] = { DONE_, END_ };

	im->as.features = WIRE_FEATURE_EXEC | WIRE_FEATURE_FILES;
	liar_start(im);
	for (int what = SCAN; what <= GET; what++) {
		_cleanup_error_ struct error err = { 0 };

		assert_int_equal(ask(im, what, nothing, &err), -1);
		assert_int_equal(err.code, ERR_UNSUPPORTED_ENV);
		assert_non_null(strstr(err.message, "older version"));
	}
	/* Nothing was sent that such a relay would not understand. */
	assert_int_equal(atomic_load(&im->sent), 0);
}

static void a_failure_is_told_in_text_that_can_be_shown(void **state)
{
	struct liar *im = *state;
	_cleanup_error_ struct error err = { 0 };
	static const char word[] = "\x1b\x00\x00\x00\x00\x00\x00\x00"
				   "bad \xff name";
	struct kept k = { 0 };

	liar_start(im);
	wire_record_append(&im->answer, RECORD_FAILED, word, sizeof(word) - 1);
	assert_int_equal(
		place_tree_scan(&im->in, &(struct place_scan){ .root = "" }, keep, &k, &err), -1);
	assert_int_equal(err.code, wire_error_meaning(0x1b));
	assert_true(utf8_valid(err.message, strlen(err.message)));
	assert_non_null(strstr(err.message, "bad "));
}

static int never_called(void *arg, const struct one_shot_call *call, struct one_shot_result *result,
			struct error *err)
{
	(void)arg;
	(void)call;
	(void)result;
	return error_set(err, ERR_INTERNAL, "nothing was to be called");
}

static void a_place_without_a_relay_says_so(void **state)
{
	struct liar *im = *state;
	struct exec_place place = place_with("bare", 1);
	static const struct said nothing[] = { DONE_, END_ };

	liar_start(im);
	place.one_shot = (struct one_shot){ .call = never_called };
	assert_int_equal(places_open(im->as.t->places, &place, NULL), 0);
	im->in.place_id = "bare";
	for (int what = SCAN; what <= GET; what++) {
		_cleanup_error_ struct error err = { 0 };

		assert_int_equal(ask(im, what, nothing, &err), -1);
		assert_int_equal(err.code, ERR_UNSUPPORTED_ENV);
		assert_non_null(strstr(err.message, "no relay"));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lies_about_trees_are_seen),
		with_hostile(the_truth_is_believed),
		with_hostile(an_endless_tree_ends),
		with_hostile(a_relay_that_only_ever_ticks_is_given_up),
		with_hostile(an_old_relay_is_told_apart),
		with_hostile(a_place_without_a_relay_says_so),
		with_hostile(a_failure_is_told_in_text_that_can_be_shown),
	};

	return cmocka_run_group_tests_name("tree_hostile", tests, NULL, NULL);
}
