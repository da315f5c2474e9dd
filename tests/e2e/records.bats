load lib

# an editor that runs a sed program over the file, once or every time
editor() {
	printf '#!/bin/bash\necho x >>"%s/edits"\n%s\n' "$T" "$1" >"$T/editor"
	chmod +x "$T/editor"
	export EDITOR=$T/editor
	unset VISUAL
	: >"$T/edits"
}
edits() { wc -l <"$T/edits"; }

@test "every kind of record can be added, listed, shown, changed and removed" {
	serve --allow-fake
	berth env add box --provider fake >box
	berth agent add ada --env box --role engineer --adapter claude_local >agent
	berth project add apollo --env box >project
	berth issue add "mend the hatch" --project apollo --agent ada --priority high >issue
	berth workspace add hull --project apollo --issue DEF-1 --cwd "$T/work" --provision 'echo hi' >workspace

	has "$(berth agent ls)" ada
	has "$(berth project ls)" "$(cat box)"
	has "$(berth issue ls)" "DEF-1"
	has "$(berth workspace ls --status active)" hull
	same "$(berth workspace ls --status archived --json)" "[]"
	same "$(berth agent show ada --json | jq -r .role)" engineer
	same "$(berth issue show DEF-1 --json | jq -r .id)" "$(cat issue)"
	same "$(berth issue show "mend the hatch" --json | jq -r .executionWorkspaceId)" "$(cat workspace)"
	same "$(berth workspace show hull --json | jq -r .config.environmentId)" "$(cat box)"

	editor 'sed -i "s/high/low/" "$1"'
	berth issue edit DEF-1
	same "$(berth issue show DEF-1 --json | jq -r .priority)" low

	exits 1 berth project rm apollo 2>err
	has "$(cat err)" "not closed"
	berth workspace close hull
	berth issue rm DEF-1
	berth workspace rm hull
	berth project rm apollo
	berth agent rm ada
	same "$(berth agent ls --json)" "[]"
	same "$(berth workspace ls --json)" "[]"
}

@test "an environment is changed in the editor; a key that was taken out is gone" {
	serve --allow-fake
	berth env add box --provider fake --image one:1 --reuse >/dev/null
	editor 'sed -i "/reuseLease/d; s/one:1/two:2/; s/\"image\": \"two:2\",/\"image\": \"two:2\"/" "$1"'
	berth env edit box 2>err
	has "$(cat err)" "environment changed"
	same "$(berth env show box --json | jq -c .config)" '{"provider":"fake","image":"two:2","reuseLease":false}'
}

@test "what the server refuses is edited again, with the reason at the top" {
	serve --allow-fake
	berth env add box --provider fake >/dev/null
	# First a driver that does not exist; the second time the line that says so is there.
	editor 'if grep -q "^# .*driver" "$1"; then sed -i "s/\"warp\"/\"sandbox\"/; s/\"box\"/\"crate\"/" "$1"; else sed -i "s/\"sandbox\"/\"warp\"/" "$1"; fi'
	berth env edit box
	same "$(edits)" 2
	same "$(berth env show crate --json | jq -r .driver)" sandbox
}

@test "giving up in the editor changes nothing" {
	serve --allow-fake
	berth env add box --provider fake >/dev/null
	berth env show box --json >before
	editor 'sed -i "s/box/crate/" "$1"; exit 1'
	exits 1 berth env edit box 2>err
	has "$(cat err)" "nothing was changed"
	editor ': >"$1"'
	exits 1 berth env edit box 2>err
	# Nonsense that stays nonsense is given up when it is saved again as it is.
	editor 'grep -q "^#" "$1" || echo "{ nonsense" >"$1"'
	exits 1 berth env edit box 2>err
	has "$(cat err)" "nothing was changed"
	same "$(edits)" 2
	# A script that never gets it right is not asked for ever.
	editor 'echo "{ nonsense $RANDOM$$" >"$1"'
	exits 1 berth env edit box 2>err </dev/null
	has "$(cat err)" "invalid JSON"
	same "$(edits)" 5
	editor 'true'
	berth env edit box 2>err
	has "$(cat err)" "not changed"
	same "$(cat before)" "$(berth env show box --json)"
	same "$(find "${TMPDIR:-/tmp}" -maxdepth 1 -name 'berth-edit-*' -newer before | wc -l)" 0
}

@test "an environment is archived and back; usage tells who has chosen it" {
	serve --allow-fake
	berth env add box --provider fake >/dev/null
	berth agent add ada --adapter claude_local --env box >/dev/null
	berth env archive box
	same "$(berth env show box --json | jq -r .status)" archived
	exits 1 berth agent add bob --adapter claude_local --env box 2>err
	has "$(cat err)" archived
	berth env archive --undo box
	same "$(berth env usage box --json | jq -c '[.canDelete, .selectedBy.agents.first[0].name]')" '[true,"ada"]'
	same "$(berth env usage Local --json | jq -c '[.canDelete, .deleteBlockedReasons]')" '[false,["local_environment"]]'
	berth env rm box
	same "$(berth agent show ada --json | jq -r .defaultEnvironmentId)" null
	exits 1 berth env archive Local 2>err
	has "$(cat err)" "cannot be archived"
}
