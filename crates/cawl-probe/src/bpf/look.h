// What is noted of a file: which one it is, and its path.
#pragma once

PART struct scratch *scratch_of_cpu(void)
{
    __u32 zero = 0;
    return bpf_map_lookup_elem(&scratches, &zero);
}

// An address as an object of the kernel's, whose fields are then loads that cannot fault: copies take 80 ns each where
// loads take 5. lib.rs puts the kernel's bpf_rdonly_cast (Linux 6.2) into the place of this call, or nothing.
static void *(*const cast)(const void *, __u64) = (void *)CAST;
#define AS(type, address) ((struct type *)cast((address), bpf_core_type_id_kernel(struct type)))

// A field of an object. Without casts the first bytes of the object were copied: one copy instead of one a field. In
// another release it may lie behind them.
#define FIELD(to, copy, from, field)                                                                                   \
    do {                                                                                                               \
        __u64 offset = __builtin_preserve_field_info((from)->field, BPF_FIELD_BYTE_OFFSET);                            \
        if (has_cast)                                                                                                  \
            (to) = (from)->field;                                                                                      \
        else if (offset <= BYTES - sizeof(to))                                                                         \
            (to) = *(typeof(to) *)((copy) + offset);                                                                   \
        else                                                                                                           \
            bpf_probe_read_kernel(&(to), sizeof(to), (char *)(from) + offset);                                         \
    } while (0)
// One field alone.
#define GET(to, from, field)                                                                                           \
    do {                                                                                                               \
        if (has_cast)                                                                                                  \
            (to) = (from)->field;                                                                                      \
        else                                                                                                           \
            COPY(to, (from)->field);                                                                                   \
    } while (0)

PART void look_at_inode(struct scratch *scratch, struct identity *to, struct inode *inode)
{
    struct super_block *super = 0;
    if (!has_cast && bpf_probe_read_kernel(scratch->inode, BYTES, inode))
        return;
    FIELD(to->ino, scratch->inode, inode, i_ino);
    FIELD(to->generation, scratch->inode, inode, i_generation);
    FIELD(to->mode, scratch->inode, inode, i_mode);
    FIELD(to->links, scratch->inode, inode, __i_nlink);
    FIELD(to->size, scratch->inode, inode, i_size);
    FIELD(super, scratch->inode, inode, i_sb);
    GET(to->dev, super, s_dev);
}

PART void look_at_file(struct scratch *scratch, struct flight *flight, struct file *file)
{
    struct inode *inode = 0;
    if (!has_cast && bpf_probe_read_kernel(scratch->file, BYTES, file))
        return;
    flight->file = (__u64)file;
    FIELD(flight->flags, scratch->file, file, f_flags);
    FIELD(flight->mode, scratch->file, file, f_mode);
    FIELD(flight->before, scratch->file, file, f_pos);
    FIELD(inode, scratch->file, file, f_inode);
    flight->inode = (__u64)inode;
    look_at_inode(scratch, &flight->identity, inode);
}

// The file behind a descriptor of this thread.
PART struct file *file_of(__u64 fd)
{
    struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
    struct files_struct *files = task->files;
    struct fdtable *descriptors;
    struct hlist_node *file = 0;
    struct file **place;
    if (!files)
        return 0;
    descriptors = files->fdt;
    if ((__u32)fd >= descriptors->max_fds)
        return 0;
    place = descriptors->fd;
    place += (__u32)fd;
    GET(file, AS(hlist_head, place), first);
    return file ? AS(file, file) : 0;
}

PART struct known known_as(struct identity *identity, __u32 tgid)
{
    return (struct known){
        .ino = identity->ino, .dev = identity->dev, .generation = identity->generation, .tgid = tgid
    };
}

// Names the file of `scratch->naming.identity` to those who read, before its call. A function of its own to the
// verifier, which checks it once.
__attribute__((noinline)) int name_it(__u64 entry_at, __u64 mount_at, __u32 tgid)
{
    struct dentry *entry = AS(dentry, (void *)entry_at);
    struct mount *mount = AS(mount, (void *)(mount_at - bpf_core_field_offset(struct mount, mnt)));
    struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
    struct fs_struct *fs = task->fs;
    struct scratch *scratch = scratch_of_cpu();
    struct path root = {};
    __u8 yes = 1;
    if (!scratch)
        return 0;
    struct naming *naming = &scratch->naming;
    struct identity *identity = &naming->identity;
    struct known known = known_as(identity, tgid);
    if (fs)
        COPY(root, fs->root);
    // The names up to the root, each with its zero; the lowest comes first. The length is kept where the verifier
    // knows nothing of it, so that it sees that all steps are alike.
    naming->length = 0;
    naming->which = IS_CUT;
    for (int step = 0; step < DEEPEST; step++) {
        struct dentry *parent = 0, *top = 0;
        const unsigned char *name = 0;
        if (entry == root.dentry && &mount->mnt == root.mnt) {
            naming->which = 0;
            break;
        }
        GET(top, mount, mnt.mnt_root);
        if (entry == top) {
            struct mount *above = 0;
            GET(above, mount, mnt_parent);
            if (above == mount || !above) {
                naming->which = 0;
                break;
            }
            GET(entry, mount, mnt_mountpoint);
            mount = above;
            continue;
        }
        GET(parent, entry, d_parent);
        // The root of another tree; a file in memory has a name and no folder.
        if (!parent || (parent == entry && *(volatile __u32 *)&naming->length)) {
            naming->which = 0;
            break;
        }
        GET(name, entry, d_name.name);
        __u32 length = *(volatile __u32 *)&naming->length;
        if (length > PATH - NAME)
            break;
        long read = bpf_probe_read_kernel_str(naming->names + length, NAME, name);
        if (read <= 0)
            break;
        naming->length = length + read;
        if (parent == entry) {
            naming->which = 0;
            break;
        }
        entry = parent;
    }
    struct super_block *super = 0;
    GET(super, AS(dentry, (void *)entry_at), d_sb);
    GET(naming->magic, super, s_magic);
    naming->cached = 0;
    if (scratch->mapping)
        COPY(naming->cached, scratch->mapping->nrpages);
    naming->head.type = NAMED;
    naming->head.tgid = tgid;
    naming->head.tid = (__u32)bpf_get_current_pid_tgid();
    __u32 length = *(volatile __u32 *)&naming->length;
    if (length > PATH)
        return 0;
    // Lost: the next call that looks at it tells it.
    if (bpf_ringbuf_output(&ring, naming, sizeof(*naming) - NAMES + length, BPF_RB_NO_WAKEUP))
        return 0;
    bpf_map_update_elem(&named, &known, &yes, BPF_ANY);
    return 1;
}

// Names the file that was looked at last. False if that was lost.
PART int name_file(struct scratch *scratch, struct flight *flight, __u32 tgid)
{
    __u32 kind = flight->identity.mode & S_IFMT;
    // Other kinds are told by their kind.
    if (kind != S_IFREG && kind != S_IFBLK && kind != S_IFDIR && kind != S_IFCHR && kind != S_IFIFO)
        return 1;
    struct known known = known_as(&flight->identity, tgid);
    if (bpf_map_lookup_elem(&named, &known))
        return 1;
    scratch->naming.identity = flight->identity;
    struct file *file = (struct file *)flight->file;
    struct path path = {};
    COPY(scratch->mapping, file->f_mapping);
    COPY(path, file->f_path);
    return name_it((__u64)path.dentry, (__u64)path.mnt, tgid);
}
