#include "files_fixture.h"

#include "workspace/journal.h"

static void a_state_is_read_back_as_it_was_written(void **state)
{
	struct files *f = *state;
	_cleanup_(workspace_state_clear) struct workspace_state back = { 0 };
	struct error err = { 0 };

	free(f->state.path);
	f->state.path = xstrdup("/srv/\xff not text");
	f->state.phase = PHASE_APPLYING;
	f->state.collect = true;
	f->state.place_root = xstrdup("/workspace");
	f->state.place_id = xstrdup("place");
	f->state.report = json_pack("{s:i}", "x", 1);
	must(workspace_state_save(&f->results, &f->state, &err), &err);
	must(workspace_state_load(&f->results, f->state.run_id, &back, &err), &err);
	assert_string_equal(back.path, f->state.path);
	assert_int_equal(back.phase, PHASE_APPLYING);
	assert_int_equal(back.mode, MODE_COPY);
	assert_true(back.collect);
	assert_string_equal(back.place_root, "/workspace");
	assert_null(back.worktree);
	assert_null(back.git);
	assert_int_equal(json_int(back.report, "x", 0), 1);
}

static void results_are_private_listed_and_dropped(void **state)
{
	struct files *f = *state;
	_cleanup_strv_ char **ids = NULL;
	struct error err = { 0 };
	struct stat st;
	int fd;

	assert_return_code(fstat(f->run_fd, &st), errno);
	assert_int_equal(st.st_mode & 0777, 0700);
	assert_return_code(fstatat(f->run_fd, RESULTS_STATE, &st, 0), errno);
	assert_int_equal(st.st_mode & 0777, 0600);
	must(results_list(&f->results, &ids, &err), &err);
	assert_string_equal(ids[0], f->state.run_id);
	assert_null(ids[1]);
	must(results_drop(&f->results, f->state.run_id, &err), &err);
	assert_int_equal(results_dir(&f->results, f->state.run_id, false, &fd, &err), -1);
	assert_int_equal(err.code, ERR_NOT_FOUND);
	assert_int_equal(results_dir(&f->results, "../../etc", true, &fd, &err), -1);
	assert_int_equal(err.code, ERR_NOT_FOUND);
	error_clear(&err);
}

static void WS_53_a_blob_is_there_only_when_it_is_whole(void **state)
{
	struct files *f = *state;
	struct error err = { 0 };
	struct blob_writer *w;
	uint8_t hash[TREE_HASH_SIZE], again[TREE_HASH_SIZE], want[TREE_HASH_SIZE];
	char text[8] = "";
	int fd;

	sha256_once("hello", 5, want);
	must(blob_create(f->run_fd, &w, &err), &err);
	must(blob_append(w, "hel", 3, &err), &err);
	assert_int_equal(blob_open(f->run_fd, want, &err), -1);
	error_clear(&err);
	must(blob_append(w, "lo", 2, &err), &err);
	must(blob_commit(w, hash, &err), &err);
	assert_memory_equal(hash, want, sizeof(want));
	must(blob_create(f->run_fd, &w, &err), &err);
	must(blob_append(w, "hello", 5, &err), &err);
	must(blob_commit(w, again, &err), &err);
	must(blobs_sync(f->run_fd, &err), &err);
	fd = blob_open(f->run_fd, hash, &err);
	assert_int_equal(read(fd, text, sizeof(text)), 5);
	assert_string_equal(text, "hello");
	close(fd);
	must(blob_create(f->run_fd, &w, &err), &err);
	blob_abandon(w);
	must(blobs_clear(f->run_fd, &err), &err);
	assert_int_equal(blob_open(f->run_fd, hash, &err), -1);
	error_clear(&err);
}

static void a_torn_journal_counts_up_to_the_tear(void **state)
{
	struct files *f = *state;
	struct error err = { 0 };
	struct journal_outcome outcome;
	struct journal_intent intent;
	struct journal *j;
	struct stat st;
	uint64_t dev, ino;

	must(journal_open(f->run_fd, 4, true, &j, &err), &err);
	journal_add_staging(j, ".berth/x", 1, 2);
	journal_add_intent(j, &(struct journal_intent){ .number = 1, .act = ACT_SWAP, .ino = 7 });
	journal_add_outcome(
		j, &(struct journal_outcome){
			   .number = 0, .fate = FATE_CONFLICT, .beside = "a\nb", .reason = "why" });
	must(journal_sync(j, &err), &err);
	fstatat(f->run_fd, RESULTS_JOURNAL, &st, 0);
	journal_add_outcome(j, &(struct journal_outcome){ .number = 1, .fate = FATE_APPLIED });
	must(journal_sync(j, &err), &err);
	journal_close(j);
	for (off_t cut = 1; cut < 20; cut++) {
		int fd = openat(f->run_fd, RESULTS_JOURNAL, O_WRONLY);

		assert_return_code(ftruncate(fd, st.st_size + cut), errno);
		close(fd);
		must(journal_open(f->run_fd, 4, true, &j, &err), &err);
		assert_false(journal_outcome(j, 1, &outcome));
		assert_true(journal_intent(j, 1, &intent));
		assert_int_equal(intent.ino, 7);
		assert_true(journal_outcome(j, 0, &outcome));
		assert_string_equal(outcome.beside, "a\nb");
		assert_string_equal(journal_staging(j, &dev, &ino), ".berth/x");
		journal_close(j);
	}
	must(journal_open(f->run_fd, 4, true, &j, &err), &err);
	journal_add_staging(j, ".berth/y", 1, 3);
	assert_false(journal_intent(j, 1, &intent));
	assert_true(journal_outcome(j, 0, &outcome));
	journal_close(j);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		with_files(a_state_is_read_back_as_it_was_written),
		with_files(results_are_private_listed_and_dropped),
		with_files(WS_53_a_blob_is_there_only_when_it_is_whole),
		with_files(a_torn_journal_counts_up_to_the_tear),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
