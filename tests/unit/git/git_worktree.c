#include "git_fixture.h"

static void dirty_host(struct git_fixture *f)
{
	SH(f->host,
	   "echo 1 >a; echo 2 >b; mkdir d; echo 3 >d/c; echo '*.log' >.gitignore; git add .; "
	   "git commit -qm one; echo x >>a; git add a; echo y >>a; git rm -q b; chmod +x d/c; "
	   "ln -s a link; git add link; echo u >untracked; echo secret >x.log; "
	   "echo i >intended; git add -N intended; git stash list");
}

static int add(struct git_fixture *f)
{
	_cleanup_free_ char *where = path_join(f->base, "tree");

	return git_worktree_add(f->host, RUN_ID, where, NULL, -1, &f->err);
}

static int drop(struct git_fixture *f, bool force)
{
	_cleanup_free_ char *where = path_join(f->base, "tree");

	return git_worktree_remove(f->host, RUN_ID, where, force, &f->err);
}

static void the_worktree_has_what_the_checkout_has(void **state)
{
	struct git_fixture *f = *state;

	dirty_host(f);
	_cleanup_free_ char *before =
		sh(f->host, "git status --porcelain; git stash list; git branch; "
			    "sha256sum .git/index");

	assert_ok(f, add(f));
	assert_sh(f->base,
		  "diff <(git -C host status --porcelain) <(git -C tree status --porcelain); "
		  "diff <(git -C host diff) <(git -C tree diff); "
		  "diff <(git -C host diff --cached) <(git -C tree diff --cached); "
		  "diff -r -x .git -x x.log host tree; ls tree/x.log 2>/dev/null || true; "
		  "git -C tree branch --show-current",
		  "berth/" RUN_ID);
	_cleanup_free_ char *after =
		sh(f->host, "git status --porcelain; git stash list; "
			    "git branch | grep -v berth; sha256sum .git/index");
	assert_string_equal(before, after);
	assert_clean_fsck(f);
	/* Once more is nothing new, even when it has been worked in. */
	SH(f->base, "cd tree; git add -A; git commit -qm work; echo more >more");
	assert_ok(f, add(f));
	assert_sh(f->base, "cd tree; git log -1 --format=%s; cat more", "work\nmore");
}

static void what_a_kill_left_is_made_anew(void **state)
{
	struct git_fixture *f = *state;

	dirty_host(f);
	assert_ok(f, add(f));
	/* Killed before it was ready. */
	SH(f->host,
	   "rm .git/berth/" RUN_ID "/worktree-ready; rm ../tree/a; echo half >../tree/d/c");
	assert_ok(f, add(f));
	assert_sh(f->base, "diff -r -x .git -x x.log host tree", "");
	/* Killed in the middle of git worktree add. */
	SH(f->host, "rm -rf ../tree .git/berth/" RUN_ID "/worktree-ready .git/worktrees/tree/HEAD");
	assert_ok(f, add(f));
	assert_sh(f->base, "diff -r -x .git -x x.log host tree; ls host/.git/worktrees", "tree");
	assert_clean_fsck(f);
}

/* It was whole once: nothing in it or on its branch is taken for a broken try. */
static void what_was_worked_in_is_not_made_anew(void **state)
{
	struct git_fixture *f = *state;

	dirty_host(f);
	assert_ok(f, add(f));
	SH(f->base, "cd tree; git commit -qam work; rm -rf ../host/.git/worktrees/tree");
	assert_int_equal(add(f), -1);
	assert_int_equal(f->err.code, ERR_CONFLICT);
	SH(f->base, "ls tree/untracked; rm -rf tree");
	assert_int_equal(add(f), -1);
	assert_non_null(strstr(f->err.message, "there is a branch"));
	assert_sh(f->host,
		  "git log -1 --format=%s berth/" RUN_ID "; git branch -q -D berth/" RUN_ID,
		  "work");
	assert_ok(f, add(f));
	assert_sh(f->base, "diff -r -x .git -x x.log host tree", "");
}

static void what_is_somebody_elses_is_refused(void **state)
{
	struct git_fixture *f = *state;

	dirty_host(f);
	SH(f->base, "mkdir tree; echo mine >tree/mine");
	assert_int_equal(add(f), -1);
	assert_int_equal(f->err.code, ERR_CONFLICT);
	assert_int_equal(drop(f, true), -1);
	assert_int_equal(f->err.code, ERR_CONFLICT);
	assert_sh(f->base, "cat tree/mine; rm -r tree; git -C host branch berth/" RUN_ID, "mine");
	assert_int_equal(add(f), -1);
	assert_non_null(strstr(f->err.message, "there is a branch"));
	SH(f->base, "rm -rf host; mkdir host");
	assert_int_equal(add(f), -1);
	assert_int_equal(f->err.code, ERR_UNPROCESSABLE);
	SH(f->base, "git init -q host");
	assert_int_equal(add(f), -1);
	assert_non_null(strstr(f->err.message, "needs a commit"));
}

static void it_goes_only_when_nothing_in_it_is_lost(void **state)
{
	struct git_fixture *f = *state;

	dirty_host(f);
	assert_ok(f, add(f));
	assert_int_equal(drop(f, false), -1);
	assert_int_equal(f->err.code, ERR_CONFLICT);
	SH(f->base, "cd tree; git add -A; git commit -qm work");
	assert_ok(f, drop(f, false));
	assert_sh(f->base,
		  "ls tree 2>/dev/null || true; git -C host worktree list | wc -l; "
		  "git -C host log -1 --format=%s berth/" RUN_ID,
		  "1\nwork");
	assert_ok(f, drop(f, false));
}

static void a_branch_without_commits_goes_too(void **state)
{
	struct git_fixture *f = *state;

	SH(f->host, "echo 1 >a; git add a; git commit -qm one");
	assert_ok(f, add(f));
	SH(f->base, "echo edit >tree/a");
	assert_int_equal(drop(f, false), -1);
	SH(f->base, "echo 1 >tree/a; echo u >tree/u");
	assert_int_equal(drop(f, false), -1);
	SH(f->base, "rm tree/u");
	assert_ok(f, drop(f, false));
	assert_sh(f->host,
		  "git branch --format='%(refname:short)'; ls .git/worktrees 2>/dev/null || true",
		  "main");
	assert_ok(f, add(f));
	assert_ok(f, git_forget(f->host, RUN_ID, &f->err));
	assert_ok(f, drop(f, true));
	assert_sh(f->base, "ls tree 2>/dev/null || ls -A host/.git/berth", "");
}

static void no_filter_or_hook_runs_for_it(void **state)
{
	struct git_fixture *f = *state;

	dirty_host(f);
	SH(f->host,
	   "printf '#!/bin/sh\\ntouch %s/ran\\ncat\\n' >../evil; chmod +x ../evil; "
	   "for h in post-checkout post-index-change reference-transaction; do cp ../evil "
	   ".git/hooks/$h; "
	   "done; git config filter.x.clean %s/evil; git config filter.x.smudge %s/evil; "
	   "git config filter.x.required true; git config core.fsmonitor %s/evil; "
	   "echo '* filter=x' >.gitattributes",
	   f->base, f->base, f->base, f->base);
	assert_ok(f, add(f));
	assert_int_equal(drop(f, false), -1);
	assert_ok(f, drop(f, true));
	assert_sh(f->base, "ls ran 2>/dev/null || echo no", "no");
}

static void a_merge_under_way_goes_along(void **state)
{
	struct git_fixture *f = *state;

	SH(f->host, "echo 1 >a; git add a; git commit -qm one; git checkout -qb side; echo s >a; "
		    "git commit -qam s; git checkout -q main; echo m >a; git commit -qam m; "
		    "git merge side >/dev/null || true");
	assert_ok(f, add(f));
	assert_sh(f->base,
		  "diff <(git -C host status --porcelain) <(git -C tree status --porcelain); "
		  "cd tree; echo both >a; git add a; git commit -qm both; "
		  "git log -1 --format=%p | wc -w",
		  "2");
	assert_sh(f->host, "git status --porcelain", "UU a");
}

/* Where the engine puts it: in the repository's own directory, or in a linked worktree. */
static void it_may_lie_in_the_repository(void **state)
{
	struct git_fixture *f = *state;
	_cleanup_free_ char *inner = path_join(f->host, ".git/berth/worktree-" RUN_ID);

	dirty_host(f);
	assert_ok(f, git_worktree_add(f->host, RUN_ID, inner, NULL, -1, &f->err));
	assert_sh(inner,
		  "diff <(git status --porcelain) <(git -C ../../.. status --porcelain); "
		  "git add -A; git commit -qm work; git log -1 --format=%s",
		  "work");
	assert_ok(f, git_worktree_remove(f->host, RUN_ID, inner, false, &f->err));
	SH(f->host, "git branch -q -D berth/" RUN_ID "; git worktree add -q -b linked ../linked");

	_cleanup_free_ char *linked = path_join(f->base, "linked");
	_cleanup_free_ char *outer = path_join(linked, ".berth/worktree-" RUN_ID);

	SH(linked, "echo n >n");
	assert_ok(f, git_worktree_add(linked, RUN_ID, outer, NULL, -1, &f->err));
	assert_sh(outer, "git status --porcelain; ls -A", "?? n\n.git\n.gitignore\na\nb\nd\nn");
	assert_sh(linked, "git status --porcelain", "?? n");
	assert_ok(f, git_worktree_remove(linked, RUN_ID, outer, true, &f->err));
	SH(linked, "rm -r .berth");
	assert_ok(f, git_worktree_remove(linked, RUN_ID, outer, true, &f->err));
}

static void a_run_in_a_worktree_comes_home_on_its_branch(void **state)
{
	struct git_fixture *f = *state;
	_cleanup_free_ char *main_path = path_join(f->base, "main");

	dirty_host(f);
	SH(f->base, "mv host main");
	assert_ok(f, git_worktree_add(main_path, RUN_ID, f->host, NULL, -1, &f->err));
	_cleanup_free_ char *before = sh(main_path, "git status --porcelain; sha256sum .git/index");

	stage(f);
	SH(f->place, "git add -A; git commit -qm work; echo more >>a");
	come_home(f);
	assert_moved(f, true);
	assert_report(f, "ref", "refs/heads/berth/" RUN_ID);
	import(f);
	settle(f);
	assert_same_status(f);
	assert_sh(main_path, "git log -1 --format=%s berth/" RUN_ID "; git log -1 --format=%s",
		  "work\none");
	assert_sh(main_path, "git status --porcelain; sha256sum .git/index", before);
}

static void it_belongs_to_the_repositorys_owner(void **state)
{
	struct git_fixture *f = *state;

	if (geteuid() != 0)
		skip();
	dirty_host(f);
	SH(f->base, "chown -R 54321:54321 host; chown 54321:54321 .");
	assert_ok(f, add(f));
	assert_sh(f->base, "find host/.git tree ! -user 54321", "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		GIT_TEST(the_worktree_has_what_the_checkout_has),
		GIT_TEST(what_a_kill_left_is_made_anew),
		GIT_TEST(what_was_worked_in_is_not_made_anew),
		GIT_TEST(what_is_somebody_elses_is_refused),
		GIT_TEST(it_goes_only_when_nothing_in_it_is_lost),
		GIT_TEST(a_branch_without_commits_goes_too),
		GIT_TEST(no_filter_or_hook_runs_for_it),
		GIT_TEST(a_merge_under_way_goes_along),
		GIT_TEST(it_may_lie_in_the_repository),
		GIT_TEST(a_run_in_a_worktree_comes_home_on_its_branch),
		GIT_TEST(it_belongs_to_the_repositorys_owner),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
