#!/usr/bin/env bash
# Manual pages, completions and the commented configuration file, from the option tables of the programs themselves:
#     deploy/generate.sh SLUICED SLUICE OUTPUT_DIRECTORY
# The build runs it (target sluice_pages). Exit 0, or not where one of the programs fails.
set -euo pipefail

sluiced=$1 sluice=$2 out=$3
version=$("$sluiced" --version)
version=${version#sluiced }
mkdir -p "$out"

head_of() { # NAME SECTION SUMMARY
    printf '.TH %s %s "" "Sluice %s" "Sluice"\n.SH NAME\n%s \\- %s\n' "${1^^}" "$2" "$version" "$1" "$3"
}

# Text as roff takes it literally.
roff='function roff(s) { gsub(/\\/, "\\e", s); gsub(/-/, "\\-", s); sub(/^[.'"'"']/, "\\\\\\&&", s); return s }'

# The daemon's options: "  --NAME VALUE", then indented lines. "file" leaves the dashes out.
daemon_options() { # flag|file
    "$sluiced" --help | awk -v form="$1" "$roff"'
        /^Each of these/ { on = 1; next }
        on && /^  --/ {
            name = $1; sub(/^  --[^ ]* ?/, "")
            if (form == "file") { sub(/^--/, "", name); printf ".TP\n.BR %s \" = \" \\fI%s\\fR\n", roff(name), roff($0) }
            else printf ".TP\n.BI %s \" %s\"\n", roff(name), roff($0)
            next
        }
        on && /^        / { sub(/^ */, ""); print roff($0) }'
}

# A command of the client: usage, text, then options with their help from column 26 on.
client_command() {
    "$sluice" help "$1" | awk "$roff"'
        NR == 1 { printf ".SS %s\n", roff($0); next }
        NR == 2 { next }
        /^  --/ {
            match($0, /^  --[^ ]+( [^ ]+)?/)
            printf ".TP\n.B %s\n", roff(substr($0, 3, RLENGTH - 2))
            $0 = substr($0, RLENGTH + 1)
        }
        { sub(/^ +/, ""); print ($0 == "" ? ".PP" : roff($0)) }'
}

{
    head_of sluiced 8 "inference daemon for one machine"
    cat << 'END'
.SH SYNOPSIS
.B sluiced \-\-model
.IR DIR | \fBsynthetic:\fINAME
[\fB\-\-config\fR \fIFILE\fR] [\fIoptions\fR]
.SH DESCRIPTION
.B sluiced
loads a decoder-only transformer, listens on a Unix socket, runs what local processes ask for in common batches on the
GPUs of this machine, and streams results back. Its client is
.BR sluice (1).
.PP
An option may stand in a file (see
.BR sluiced.conf (5)),
in the environment as SLUICE_NAME with "_" for "\-", and on the command line, each going over the one before it. None may be given twice
in one of these, but those of which several add up.
.SH COMMANDS
.TP
.BI \-\-config " FILE"
Options are read from this file first; SLUICE_CONFIG does the same.
.TP
.B \-\-calibrate
Runs the one program that
.B \-\-program
names at many sizes of chunks and numbers of lanes, measures copies, allocations and streams of the machine, writes which to set, as a file
whose comments are what was found, and ends.
.TP
.BI \-\-calibrate\-page " FILE.html"
With it: curves as a page, and all figures as FILE.json beside it.
.TP
.BI \-\-calibrate\-store " FILE.conf"
With it: job\-chunk and job\-lanes are set to what it found in that configuration, which keeps its other lines.
.TP
.B \-\-check
Says whether configuration and model can be used, and ends. Loads nothing.
.TP
.B \-\-print\-config
Prints the options in effect, as a file, and ends.
.TP
.BR \-\-help ", " \-\-version
.SH OPTIONS
END
    daemon_options flag
    cat << 'END'
.SH SIGNALS
.TP
.BR SIGTERM ", " SIGINT
No new work; what was accepted goes on for drain\-timeout, the rest is cancelled and told so. A second one ends the
process at once.
.TP
.B SIGHUP
Reads the options again, whole or not at all.
.SH EXIT STATUS
0 asked to end, 1 asked twice, 64 wrong flags, 75 the device failed and a restart may help, 78 configuration or model
cannot be used.
.SH SERVICE
.B systemctl enable \-\-now sluiced.socket
starts the daemon with its first client,
.B systemctl enable \-\-now sluiced
with the machine. Both serve /run/sluice/sluice.sock to members of group sluice. It is ready when a first request of
its own was answered, and is killed and started again when a step, or a model that sleeps or wakes, makes no progress. A second daemon is
.BI sluiced@ NAME
with /etc/sluice/\fINAME\fR.conf and /run/sluice/\fINAME\fR.sock. HTTP is served on /run/sluice/http.sock, too, and to callers with a key of
api\-key\-file on 127.0.0.1:8000 once sluiced\-tcp.socket is enabled and the service is started again, /metrics on 127.0.0.1:9464 with
sluiced\-metrics.socket, HAProxy's agent check on 127.0.0.1:9474 with sluiced\-agent.socket.
.PP
The service sees neither /home, /root nor the machine's /tmp, writes nothing outside its cache, and has no network of its own: models belong
to /var/lib/sluice.
.B sluiced \-\-check \-\-config /etc/sluice/sluiced.conf
looks as the service would, by its unit and drop-ins, and as root as its user.
.SH SEE ALSO
.BR sluice (1),
.BR sluiced.conf (5)
END
} > "$out/sluiced.8"

{
    head_of sluiced.conf 5 "options of the inference daemon"
    cat << 'END'
.SH DESCRIPTION
Lines of the form "key = value", empty lines, and comments that start with "#". A key that is unknown, repeated (but for
those of which several add up) or out of range is an error that names file and line, and the daemon does not start, or keeps what it has when it was told to
read the file again. Sizes have the units KiB, MiB and GiB, times ms and s. "Reloadable" options change with
.BR "systemctl reload sluiced" .
.SH OPTIONS
END
    daemon_options file
    printf '.SH SEE ALSO\n.BR sluiced (8)\n'
} > "$out/sluiced.conf.5"

{
    head_of sluice 1 "client of the Sluice inference daemon"
    printf '.SH SYNOPSIS\n.B sluice\n[\\fB\\-i\\fR \\fINAME\\fR]\n.I COMMAND\n[\\fIoptions\\fR]\n.SH COMMANDS\n'
    "$sluice" --help | awk '/^  [a-z]/ { print $1 }' | while read -r command; do
        client_command "$command"
    done
    printf '.SH EXIT STATUS\n'
    "$sluice" --help | awk '/^Exit status/ { on = 1; sub(/^Exit status: /, "") } on'
    printf '.SH SEE ALSO\n.BR sluiced (8)\n'
} > "$out/sluice.1"

{
    cat << 'END'
# Options of sluiced, see sluiced.conf(5). What is commented out shows the default.
# After a change: systemctl reload sluiced, where the option is reloadable; else systemctl restart sluiced.

END
    # Nothing from the environment of whoever builds this.
    env -i "$sluiced" --print-config
} > "$out/sluiced.conf"
"$(dirname "$0")/completions.sh" "$sluiced" "$sluice" "$out"
gzip -9nkf "$out"/sluiced.8 "$out"/sluiced.conf.5 "$out"/sluice.1
