//! A run as OpenTelemetry's traces, read by the protocol's own package.

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use cawl_kit::{Dir, Running, find};
use serde_json::{Value, json};

use super::readers::ask_python;
use super::{export, rows};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const SPAN: &str = "b7ad6b7169203331";

/// Receives one request as a collector does, and tells of each span what the protocol's package reads.
const RECEIVER: &str = "
import http.server, json, sys
from opentelemetry.proto_json.collector.trace.v1.trace_service import ExportTraceServiceRequest
class Receiver(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers['Content-Length']))
        assert self.path == '/v1/traces' and self.headers['Content-Type'] == 'application/json'
        request = ExportTraceServiceRequest.from_dict(json.loads(body))
        for resource in request.resource_spans:
            of = {a.key: a.value.string_value for a in resource.resource.attributes}
            for scope in resource.scope_spans:
                for span in scope.spans:
                    about = {a.key: a.value.string_value or a.value.int_value for a in span.attributes}
                    print(json.dumps([of['service.name'], span.name, span.trace_id.hex(), span.span_id.hex(),
                                      span.parent_span_id.hex() if span.parent_span_id else '',
                                      span.start_time_unix_nano, span.end_time_unix_nano, about]), flush=True)
        self.send_response(200)
        self.end_headers()
    def log_message(self, *_):
        pass
server = http.server.HTTPServer(('127.0.0.1', 0), Receiver)
with open(sys.argv[1], 'w') as told:
    told.write(f'{server.server_port}\\n')
server.timeout = 60
server.handle_request()
";

#[test]
fn a_slow_request_leads_to_its_fsync() {
    let Some(curl) = find("curl") else { return };
    let dir = Dir::new();
    let given = format!("TRACEPARENT=00-{TRACE}-{SPAN}-01");
    let script = "dd if=/dev/zero of=a bs=64K count=20 conv=fsync status=none; printf 1 > b";
    let (finished, _) = dir.run(&[], &["env", &given, "sh", "-c", script]);
    finished.success();
    let rows = rows(&dir, &dir.trace());
    export(&dir, &dir.trace(), "otlp", &["-o", "run.json"]).success();
    // What is told again has the ids of the first time.
    let again = export(&dir, &dir.trace(), "otlp", &[]).success().stdout;
    assert_eq!(std::fs::read_to_string(dir.work().join("run.json")).expect("a file"), again);

    let port = dir.path().join("port");
    let (file, to) = (dir.work().join("run.json"), port.clone());
    let post = std::thread::spawn(move || {
        // Without the package there is no receiver, and no file.
        for _ in 0..600 {
            let number = std::fs::read_to_string(&to).unwrap_or_default();
            if number.ends_with('\n') {
                let mut command = std::process::Command::new(curl);
                command.args(["-sS", "--fail", "-H", "Content-Type: application/json", "--data-binary"]);
                command
                    .arg(format!("@{}", file.display()))
                    .arg(format!("http://127.0.0.1:{}/v1/traces", number.trim()));
                return Running::start(command).finish().status.success();
            }
            sleep(Duration::from_millis(100));
        }
        false
    });
    let said = ask_python(&dir, &["opentelemetry.proto_json"], RECEIVER, &[Path::new(&port)]);
    let Some(spans) = said else { return };
    assert!(post.join().expect("it does not panic"));

    let name = |span: &Value| span[1].as_str().expect("a name").to_owned();
    let processes: Vec<&Value> = spans.iter().filter(|span| span[7]["cawl.calls"] != Value::Null).collect();
    let of = |program: &str| {
        let found = processes.iter().find(|span| span[0] == program);
        *found.unwrap_or_else(|| panic!("{program}: {processes:#?}"))
    };
    assert_eq!((&of("dd")[2], &of("dd")[4]), (&json!(TRACE), &json!(SPAN)));
    let fsync = spans.iter().find(|span| name(span) == "fsync").expect("dd called it");
    assert_eq!((&fsync[2], &fsync[4]), (&json!(TRACE), &of("dd")[3]));
    let row = rows.iter().find(|row| row["op"] == "fsync").expect("it is in the trace");
    let took = fsync[6].as_i64().zip(fsync[5].as_i64()).map(|(end, start)| end - start);
    assert_eq!(took, row["duration_ns"].as_i64());
    assert_eq!((&fsync[7]["file.path"], &fsync[7]["cawl.cause"]), (&row["path"], &row["cause"]));
    // Ids are of one span each, and calls lie in their process.
    let mut ids: Vec<&str> = spans.iter().filter_map(|span| span[3].as_str()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), spans.len());
    let calls = spans.iter().filter(|span| span[7]["cawl.calls"] == Value::Null);
    assert!(calls.clone().count() <= 120 && calls.clone().count() > 20, "{}", calls.count());
}
