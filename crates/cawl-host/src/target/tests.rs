use super::*;

/// A machine of files in a folder of its own.
struct Files(tempfile::TempDir);

impl Files {
    fn new(mounts: &[(&str, &str)]) -> Files {
        let files = Files(tempfile::tempdir().unwrap());
        let line = |(mount, kind): &(&str, &str)| {
            let (kind, options) = kind.split_once(' ').unwrap_or((kind, ""));
            format!("31 23 0:28 / /sys/fs/cgroup{mount} rw,relatime - {kind} {kind} rw,{options}\n")
        };
        files.put("proc/self/mountinfo", &mounts.iter().map(line).collect::<String>());
        files
    }

    /// Version 2 alone.
    fn unified() -> Files {
        Files::new(&[("", "cgroup2")])
    }

    /// Version 1 beside version 2, which has no controllers.
    fn hybrid() -> Files {
        Files::new(&[
            ("/memory", "cgroup memory"),
            ("/systemd", "cgroup name=systemd"),
            ("/unified", "cgroup2"),
        ])
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// A control group with these processes.
    fn group(&self, path: &str, processes: &[u32]) {
        let text: String = processes.iter().map(|pid| format!("{pid}\n")).collect();
        self.put(&format!("sys/fs/cgroup/{path}/cgroup.procs"), &text);
    }

    fn find(&self, name: &Name) -> anyhow::Result<Found> {
        System { root: self.0.path().to_owned() }.find(name)
    }

    /// Groups, below /sys/fs/cgroup, and processes.
    fn found(&self, name: &Name) -> (Vec<String>, Vec<u32>) {
        let found = self.find(name).unwrap();
        let top = self.0.path().join("sys/fs/cgroup");
        let group = |folder: &PathBuf| folder.strip_prefix(&top).unwrap().to_str().unwrap().to_owned();
        (found.groups.iter().map(group).collect(), found.processes)
    }

    fn refused(&self, name: &Name) -> String {
        format!("{:#}", self.find(name).unwrap_err())
    }
}

fn unit(name: &str) -> Name {
    Name::Unit(name.to_owned())
}

fn container(name: &str) -> Name {
    Name::Container(name.to_owned())
}

fn id(begin: &str) -> String {
    format!("{begin:0<64}")
}

#[test]
fn a_unit_is_a_folder() {
    let files = Files::unified();
    files.group("system.slice/redis-server.service", &[12]);
    files.group("system.slice/system-postgresql.slice/postgresql@15-main.service", &[9, 7]);
    files.group("user.slice/user-1000.slice/user@1000.service/app.slice/mine.service", &[30]);
    files.group("batch.slice/run-1.scope", &[40]);
    files.group("system.slice/idle.service", &[]);
    for (name, group, processes) in [
        ("redis-server", "system.slice/redis-server.service", vec![12]),
        ("redis-server.service", "system.slice/redis-server.service", vec![12]),
        ("postgresql@15-main", "system.slice/system-postgresql.slice/postgresql@15-main.service", vec![7, 9]),
        ("mine", "user.slice/user-1000.slice/user@1000.service/app.slice/mine.service", vec![30]),
        ("batch.slice", "batch.slice", vec![40]),
        ("run-1.scope", "batch.slice/run-1.scope", vec![40]),
    ] {
        assert_eq!(files.found(&unit(name)), (vec![group.to_owned()], processes), "{name}");
    }
    let refusal = files.refused(&unit("redis"));
    assert!(
        refusal.contains("no unit redis.service is running here; systemd does not run here"),
        "{refusal}"
    );
    assert!(files.refused(&unit("idle")).contains("the unit idle has no processes now; start it"));
}

#[test]
fn of_several_hierarchies_the_best_with_processes() {
    let files = Files::hybrid();
    files.group("memory/system.slice/a.service", &[1, 2]);
    files.group("systemd/system.slice/a.service", &[1, 2]);
    assert_eq!(files.found(&unit("a")), (vec!["systemd/system.slice/a.service".to_owned()], vec![1, 2]));
    files.group("unified/system.slice/a.service", &[]);
    assert_eq!(files.found(&unit("a")).0, ["systemd/system.slice/a.service"]);
    files.group("unified/system.slice/a.service", &[2, 1]);
    assert_eq!(files.found(&unit("a")), (vec!["unified/system.slice/a.service".to_owned()], vec![1, 2]));
    // Docker with cgroupfs, without a group in systemd's hierarchy.
    files.group(&format!("memory/docker/{}", id("5f")), &[77]);
    assert_eq!(files.found(&container("5f")).1, [77]);
}

#[test]
fn a_container_is_known_by_its_id() {
    let files = Files::unified();
    let engines = [
        ("a1", "docker/ID"),
        ("a2", "system.slice/docker-ID.scope"),
        ("a3", "machine.slice/libpod-ID.scope"),
        (
            "a4",
            "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1_2.slice/cri-containerd-ID.scope",
        ),
        ("a5", "kubepods/burstable/pod11-22/ID"),
        ("a6", "system.slice/containerd.service/kubepods-pod3.slice:cri-containerd:ID"),
        ("a7", "kubepods.slice/kubepods-pod4.slice/crio-ID.scope"),
        ("a8", "system.slice/nerdctl-ID.scope"),
    ];
    for (at, (begin, group)) in (100..).zip(engines) {
        files.group(&group.replace("ID", &id(begin)), &[at]);
    }
    files.group(&format!("machine.slice/libpod-conmon-{}.scope", id("a3")), &[1]);
    for (at, (begin, group)) in (100..).zip(engines) {
        let wanted = (vec![group.replace("ID", &id(begin))], vec![at]);
        assert_eq!(files.found(&container(begin)), wanted, "{group}");
        assert_eq!(files.found(&container(&id(begin))), wanted, "{group}");
        assert_eq!(files.found(&container(&id(begin)[..12])), wanted, "{group}");
    }
    // Podman's processes are a level below.
    files.group(&format!("machine.slice/libpod-{}.scope/container", id("b1")), &[200]);
    let wanted = (vec![format!("machine.slice/libpod-{}.scope", id("b1"))], vec![200]);
    assert_eq!(files.found(&container("b1")), wanted);
    assert!(files.refused(&container("a")).contains("the ids of 8 containers begin with a; give more"));
    for name in ["c", "web", &id("c")] {
        assert!(files.refused(&container(name)).contains("is running here; docker ps"), "{name}");
    }
}

#[test]
fn a_container_is_known_by_its_name() {
    let files = Files::unified();
    for (at, begin) in (1..).zip(["d1", "d2", "d3", "d4"]) {
        files.group(&format!("system.slice/docker-{}.scope", id(begin)), &[at]);
    }
    files.put(&format!("var/lib/docker/containers/{}/config.v2.json", id("d1")), r#"{"Name":"/web"}"#);
    files.put(&format!("var/lib/docker/containers/{}/config.v2.json", id("00")), "damaged");
    let list = format!(r#"[{{"id":"{}","names":["shop","other"]}},{{}}]"#, id("d2"));
    files.put("var/lib/containers/storage/overlay-containers/containers.json", &list);
    files.put("var/lib/nerdctl/1935db59/names/default/cache", &id("d3"));
    files.put(&format!("var/log/containers/pod-0_space_d-{}.log", id("d4")), "");
    files.group("lxc.payload.box", &[5]);
    files.group("machine.slice/machine-mail.scope", &[6]);
    files.group("machine.slice/systemd-nspawn@dns.service", &[7]);
    for (at, (folder, group)) in (8..).zip([
        ("run/runc/build", "build"),
        ("run/crun/pack", "system.slice/crun-pack.scope"),
        ("run/containerd/runc/default/job", "default/job"),
    ]) {
        files.put(&format!("{folder}/state"), "");
        files.group(group, &[at]);
    }
    files.group("stranger", &[11]);
    for (name, pid) in [
        ("web", 1),
        ("shop", 2),
        ("other", 2),
        ("cache", 3),
        ("box", 5),
        ("mail", 6),
        ("dns", 7),
        ("build", 8),
        ("pack", 9),
        ("job", 10),
    ] {
        assert_eq!(files.found(&container(name)).1, [pid], "{name}");
    }
    // A name comes before the beginning of an id.
    assert_eq!(files.found(&container("d")).1, [4]);
    files.put(&format!("var/lib/docker/containers/{}/config.v2.json", id("ee")), r#"{"Name":"/gone"}"#);
    for name in ["gone", "stranger"] {
        assert!(files.refused(&container(name)).contains("is running here; docker ps"), "{name}");
    }
}

#[test]
fn engines_are_asked_by_their_own_words() {
    let ask = |program: &str, arguments: &[&str]| match program {
        "nerdctl" => (arguments.last() == Some(&"web") && arguments.contains(&"{{.ID}}")).then(|| id("1")),
        "crictl" => arguments.contains(&"^api$").then(|| id("2")),
        _ => None,
    };
    assert_eq!(container::asked("web", ask), Some(id("1")));
    assert_eq!(container::asked("api", ask), Some(id("2")));
    assert_eq!(container::asked("a.*", ask), None);
    assert_eq!(container::asked("x", |_, _| Some("no id".to_owned())), None);
}

#[test]
fn a_program_answers_in_a_line() {
    assert_eq!(answer("printf", &[" one \\ntwo\\n"]), Some("one".to_owned()));
    assert_eq!(answer("sh", &["-c", "echo one; exit 1"]), None);
    assert_eq!(answer("true", &[]), None);
    assert_eq!(answer("/no/such/program", &[]), None);
}

#[test]
fn processes_of_a_group_are_those_below_it_too() {
    let files = Files::unified();
    files.group("a", &[5, 0]);
    files.group("a/b/c", &[3, 9]);
    files.group("d", &[1]);
    let folder = files.0.path().join("sys/fs/cgroup/a");
    assert_eq!(processes(&folder), [3, 5, 9]);
    assert_eq!(files.found(&Name::Group(folder.clone())).1, [3, 5, 9]);
    files.group("empty", &[]);
    let beside = |name: &str| files.refused(&Name::Group(folder.with_file_name(name)));
    assert!(beside("empty").contains("has no processes now; name one that has"));
    assert!(beside("missing").contains("there is no control group"));
    assert!(files.refused(&Name::Group(files.0.path().join("sys"))).contains("is no control group"));
    assert!(processes(&folder.join("missing")).is_empty());
}

#[test]
fn processes_that_can_be_followed() {
    let files = Files::unified();
    let put = |pid: u32, leader: u32, stat: &str| {
        files.put(
            &format!("proc/{pid}/stat"),
            &format!("{pid} {stat} 1 1 1 0 -1 FLAGS 0").replace("FLAGS", "4194560"),
        );
        files.put(&format!("proc/{pid}/status"), &format!("Name:\tx\nTgid:\t{leader}\n"));
    };
    put(10, 10, "(a) b) S");
    put(11, 10, "(worker) S");
    put(12, 12, "(gone) Z");
    files.put("proc/13/stat", "13 (jbd2/vda1-8) S 2 0 0 0 -1 2129984 0");
    assert_eq!(files.find(&Name::Process(10)).unwrap(), Found { groups: vec![], processes: vec![10] });
    for (pid, why) in [
        (11, "11 is a thread of the process 10; give that"),
        (12, "the process 12 (gone) has ended"),
        (13, "13 (jbd2/vda1-8) is a thread of the kernel"),
        (14, "there is no process 14; ps -e"),
    ] {
        let said = files.refused(&Name::Process(pid));
        assert!(said.contains(why), "{said}");
    }
}

#[test]
fn this_process_is_not_to_follow_itself() {
    let own = std::process::id();
    for pid in [own, crate::parent(own)] {
        let error = Name::Process(pid).find().unwrap_err().to_string();
        assert!(error.contains("one of those that started this one"), "{error}");
    }
    assert!(ancestors(own).count() > 1);
}
