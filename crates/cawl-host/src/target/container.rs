//! Containers: how engines name their control groups, and where they keep the names that people give.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// Length of an id, in hexadecimal digits.
const ID: usize = 64;

/// True for what can be an id, or the beginning of one.
pub fn may_be_id(name: &str) -> bool {
    (1..=ID).contains(&name.len()) && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The id in the name of a control group: `ID`, `docker-ID.scope`, `libpod-ID.scope`,
/// `cri-containerd-ID.scope`, `crio-ID.scope`, `SLICE:cri-containerd:ID`. None for that of a process that
/// watches over a container.
pub fn id(folder: &str) -> Option<&str> {
    let mut parts = folder.split(|letter: char| !letter.is_ascii_alphanumeric());
    parts.find(|part| part.len() == ID && may_be_id(part)).filter(|_| !folder.contains("conmon-"))
}

/// True for the control group of a container that has a name only: of LXC or systemd-nspawn.
pub fn is_named(folder: &str, name: &str) -> bool {
    [("lxc.payload.", ""), ("machine-", ".scope"), ("systemd-nspawn@", ".service")].iter().any(
        |(before, after)| folder.strip_prefix(before).and_then(|rest| rest.strip_suffix(after)) == Some(name),
    )
}

/// True if a runtime has a container of this name, which is its id, without an engine: `runc run NAME`,
/// `ctr run NAME`.
pub fn is_of_runtime(root: &Path, name: &str) -> bool {
    let plain = ["run/runc", "run/crun"].map(|folder| root.join(folder));
    let folders = entries(&root.join("run/containerd/runc")).into_iter().chain(plain);
    !name.contains('/') && folders.into_iter().any(|folder| folder.join(name).is_dir())
}

/// True for the control group that a runtime makes for the container of this name, unless it is told another.
pub fn is_of(folder: &str, name: &str) -> bool {
    let folder = folder.strip_suffix(".scope").unwrap_or(folder);
    let before = folder.strip_suffix(name);
    before.is_some_and(|before| matches!(before, "" | "runc-" | "crun-"))
}

/// The id of the container of this name, if an engine tells. `ask` runs a program for the line that it
/// prints.
pub fn asked(name: &str, ask: impl Fn(&str, &[&str]) -> Option<String>) -> Option<String> {
    let inspect =
        |engine, format| ask(engine, &["inspect", "--type=container", "--format", format, "--", name]);
    // It takes a pattern.
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let of_kubelet =
        || is_plain.then(|| ask("crictl", &["ps", "--quiet", "--name", &format!("^{name}$")])).flatten();
    let told = inspect("docker", "{{.Id}}")
        .or_else(|| inspect("podman", "{{.Id}}"))
        .or_else(|| inspect("nerdctl", "{{.ID}}"))
        .or_else(of_kubelet)?;
    id(&told).map(str::to_owned)
}

/// The id of the container of this name, by the files that engines keep below this root.
pub fn kept(root: &Path, name: &str) -> Option<String> {
    docker(root, name)
        .or_else(|| podman(root, name))
        .or_else(|| nerdctl(root, name))
        .or_else(|| kubelet(root, name))
}

/// /var/lib/docker/containers/ID/config.v2.json has the name after a slash.
fn docker(root: &Path, name: &str) -> Option<String> {
    entries(&root.join("var/lib/docker/containers")).into_iter().find_map(|folder| {
        let config = json(&folder.join("config.v2.json"))?;
        let is_it = config["Name"].as_str()?.trim_start_matches('/') == name;
        is_it.then(|| Some(id(folder.file_name()?.to_str()?)?.to_owned()))?
    })
}

/// containers.json in root's storage, and volatile-containers.json beside it, list ids with their names.
fn podman(root: &Path, name: &str) -> Option<String> {
    let storage = root.join("var/lib/containers/storage/overlay-containers");
    ["containers.json", "volatile-containers.json"].into_iter().find_map(|file| {
        let list = json(&storage.join(file))?;
        let is_it = |one: &&Value| {
            one["names"].as_array().is_some_and(|names| names.iter().any(|known| known == name))
        };
        Some(id(list.as_array()?.iter().find(is_it)?["id"].as_str()?)?.to_owned())
    })
}

/// /var/lib/nerdctl/STORE/names/NAMESPACE/NAME has the id.
fn nerdctl(root: &Path, name: &str) -> Option<String> {
    if name.contains('/') {
        return None;
    }
    let stores = entries(&root.join("var/lib/nerdctl"));
    let spaces = stores.into_iter().flat_map(|store| entries(&store.join("names")));
    spaces
        .into_iter()
        .find_map(|space| Some(id(fs::read_to_string(space.join(name)).ok()?.trim())?.to_owned()))
}

/// /var/log/containers has links POD_NAMESPACE_NAME-ID.log.
fn kubelet(root: &Path, name: &str) -> Option<String> {
    entries(&root.join("var/log/containers")).into_iter().find_map(|link| {
        let (rest, id) = link.file_stem()?.to_str()?.rsplit_once('-')?;
        let is_it = rest.rsplit_once('_')?.1 == name;
        self::id(id).filter(|_| is_it).map(str::to_owned)
    })
}

/// What is in a folder, in order of the names.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut entries: Vec<_> = entries.map(|entry| entry.path()).collect();
    entries.sort_unstable();
    entries
}

fn json(file: &Path) -> Option<Value> {
    serde_json::from_slice(&fs::read(file).ok()?).ok()
}
