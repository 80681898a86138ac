use proptest::prelude::*;

use super::*;
use crate::cgroup::{is_below, path, place};

const PLAIN: &str = "11112222-3333-4444-5555-666677778888";
const STATIC: &str = "0123456789abcdef0123456789abcdef";

/// cgroup v2, as a process outside of containers sees it.
fn host() -> Bases {
    Bases::of("0::/init.scope\n")
}

/// cgroup v2, as a daemon at `kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podX.slice/Y.scope` sees it.
fn inside() -> Bases {
    Bases::of("0::/../../../../init.scope\n")
}

fn pod(uid: &str) -> Place {
    let text = format!("0::/kubepods/pod{uid}/c\n");
    let place = place(&text, &host());
    assert!(matches!(&place, Place::Pod(of) if of.as_str() == uid), "{place:?}");
    place
}

fn at(path: &str) -> Place {
    place(&format!("0::{path}\n"), &host())
}

fn seen_inside(path: &str) -> Place {
    place(&format!("0::{path}\n"), &inside())
}

#[test]
fn a_pod_is_found_by_each_cgroup_driver() {
    let underscored = PLAIN.replace('-', "_");
    for path in [
        format!("/kubepods.slice/kubepods-pod{underscored}.slice/cri-containerd-c.scope"),
        format!("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{underscored}.slice/c.scope"),
        format!(
            "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-pod{underscored}.slice/c.scope"
        ),
        format!("/kubepods/pod{PLAIN}/c"),
        format!("/kubepods/burstable/pod{PLAIN}/c/deeper"),
        format!("/kubelet/kubepods/besteffort/pod{PLAIN}"),
    ] {
        assert_eq!(at(&path), pod(PLAIN), "{path}");
    }
    assert_eq!(at(&format!("/kubepods.slice/kubepods-pod{STATIC}.slice/c.scope")), pod(STATIC));
}

#[test]
fn a_static_pod_has_a_hash_as_uid_and_no_other_pod_has() {
    let is_static = |uid| matches!(pod(uid), Place::Pod(uid) if uid.is_static());
    assert!(is_static(STATIC));
    assert!(!is_static(PLAIN));
    for wrong in
        ["", "x", "0123", &STATIC[1..], &STATIC.to_uppercase(), &PLAIN[1..], &PLAIN.replace('-', "")[1..]]
    {
        assert_eq!(at(&format!("/kubepods/pod{wrong}/c")), Place::Elsewhere, "{wrong}");
    }
}

#[test]
fn a_daemon_in_a_container_sees_the_same() {
    let underscored = PLAIN.replace('-', "_");
    for path in [
        format!("/../../kubepods-burstable-pod{underscored}.slice/c.scope"),
        format!("/../../../kubepods-pod{underscored}.slice/c.scope"),
        format!("/../../../kubepods-besteffort.slice/kubepods-besteffort-pod{underscored}.slice/c.scope"),
        format!("/../../../../kubepods.slice/kubepods-pod{underscored}.slice/c.scope"),
        format!("/../../pod{PLAIN}/c"),
        format!("/../../../burstable/pod{PLAIN}/c"),
    ] {
        assert_eq!(seen_inside(&path), pod(PLAIN), "{path}");
    }
    assert_eq!(seen_inside("/../../../../system.slice/k3s.service"), Place::Service("k3s.service".into()));
}

#[test]
fn a_cgroup_with_a_pods_name_elsewhere_is_no_pod() {
    let underscored = PLAIN.replace('-', "_");
    for path in [
        // The user of a session can create cgroups below it.
        format!(
            "/user.slice/user-1000.slice/user@1000.service/kubepods.slice/kubepods-pod{underscored}.slice/c"
        ),
        format!("/user.slice/user-1000.slice/user@1000.service/kubepods/pod{PLAIN}/c"),
        format!("/user.slice/kubepods-pod{underscored}.slice"),
        format!("/docker/abc/kubepods/burstable/pod{PLAIN}/c"),
        format!("/kubepods-pod{underscored}.slice"),
        format!("/pod{PLAIN}/c"),
        format!("/kubepods.slice/kubepods-burstable.slice/kubepods-pod{underscored}.slice"),
        format!("/kubepods/burstable/besteffort/pod{PLAIN}"),
    ] {
        assert_eq!(at(&path), Place::Elsewhere, "{path}");
    }
    for path in [
        format!("/../../../../user.slice/user@1000.service/kubepods/pod{PLAIN}/c"),
        format!("/../../../../pod{PLAIN}/c"),
        format!("/../../cri-containerd-c.scope/pod{PLAIN}"),
        // More steps up than there are.
        format!("/../../../../../kubepods/pod{PLAIN}/c"),
    ] {
        assert_eq!(seen_inside(&path), Place::Elsewhere, "{path}");
    }
}

#[test]
fn a_pod_that_makes_cgroups_below_its_own_stays_who_it_is() {
    let other = PLAIN.replace('1', "9");
    assert_eq!(at(&format!("/kubepods/burstable/pod{PLAIN}/c/kubepods/burstable/pod{other}/c")), pod(PLAIN));
    let [own, others] = [PLAIN, STATIC].map(|uid| uid.replace('-', "_"));
    let path = format!(
        "/kubepods.slice/kubepods-pod{own}.slice/c.scope/kubepods.slice/kubepods-pod{others}.slice/c"
    );
    assert_eq!(at(&path), pod(PLAIN));
}

#[test]
fn a_service_is_its_own_cgroup_and_not_those_below() {
    assert_eq!(at("/system.slice/k3s.service"), Place::Service("k3s.service".into()));
    let instance = Place::Service("scheduler@a.service".into());
    assert_eq!(at("/system.slice/system-scheduler.slice/scheduler@a.service"), instance);
    for path in [
        "/system.slice/docker-0123.scope",
        "/system.slice/containerd.service/kubepods-pod.slice:cri-containerd:c",
        "/system.slice",
        "/user.slice/user-1000.slice/user@1000.service",
        "/user.slice/user-1000.slice/user@1000.service/app.slice/x.service",
        "/other/system.slice/k3s.service",
        "/",
    ] {
        assert_eq!(at(path), Place::Elsewhere, "{path}");
    }
}

#[test]
fn with_v1_the_lines_must_agree() {
    let bases = Bases::of("9:name=systemd:/init.scope\n8:pids:/\n4:memory:/\n0::/\n");
    let found = |text: &str| place(text, &bases);
    let in_pod = format!("/kubepods/pod{PLAIN}/c");
    assert_eq!(
        found(&format!("9:name=systemd:{in_pod}\n8:pids:{in_pod}\n4:memory:{in_pod}\n0::/\n")),
        pod(PLAIN)
    );
    // The container runtime's own service, in the hierarchy without controllers.
    let text = format!("9:name=systemd:{in_pod}\n8:pids:{in_pod}\n0::/system.slice/containerd.service\n");
    assert_eq!(found(&text), pod(PLAIN));
    let other = format!("/kubepods/pod{STATIC}/c");
    assert_eq!(found(&format!("8:pids:{in_pod}\n4:memory:{other}\n")), Place::Elsewhere);
    assert_eq!(
        found("9:name=systemd:/system.slice/k3s.service\n8:pids:/\n0::/\n"),
        Place::Service("k3s.service".into())
    );
    let text = "9:name=systemd:/docker/c\n8:pids:/docker/c\n0::/system.slice/docker.service\n";
    assert_eq!(found(text), Place::Elsewhere);
    assert_eq!(path(text, &bases).as_deref(), Some("/system.slice/docker.service"));
    // A hierarchy that process 1 is not in.
    assert_eq!(found(&format!("7:cpu:{in_pod}\n")), Place::Elsewhere);
}

#[test]
fn in_a_node_that_is_a_container_paths_begin_at_its_own_first_process() {
    let bases = Bases::of("1:name=systemd:/docker/node/init.scope\n2:memory:/docker/node\n");
    let at =
        |below: &str| place(&format!("1:name=systemd:/docker{below}\n2:memory:/docker{below}\n"), &bases);
    assert_eq!(at(&format!("/node/kubelet/kubepods/burstable/pod{STATIC}/c")), pod(STATIC));
    assert_eq!(at(&format!("/other/kubelet/kubepods/burstable/pod{STATIC}/c")), Place::Elsewhere);
    assert_eq!(at(&format!("/node2/kubelet/kubepods/burstable/pod{STATIC}/c")), Place::Elsewhere);
}

#[test]
fn a_cgroup_is_below_itself_and_its_parents_only() {
    assert!(is_below("/docker/a", "/docker"));
    assert!(is_below("/docker", "/docker"));
    assert!(!is_below("/docker2/a", "/docker"));
    assert!(!is_below("/a/docker", "/docker"));
    assert!(is_below("/anything", ""));
}

#[test]
fn the_user_of_a_process_is_the_one_with_the_fewest_rights() {
    let status = |users: &str| format!("Name:\tx\nPPid:\t7\nUid:\t{users}\nGid:\t0\t0\t0\t0\n");
    let of = |users: &str| Credentials::parse(&status(users));
    assert_eq!(of("0\t0\t0\t0"), Some(Credentials { user: 0, parent: 7 }));
    // A program with the set-user-ID bit, started by user 1000.
    assert_eq!(of("1000\t0\t0\t0"), Some(Credentials { user: 1000, parent: 7 }));
    assert_eq!(of(""), None);
    assert_eq!(of("x\t0"), None);
    assert_eq!(Credentials::parse("Name:\tx\n"), None);
}

#[test]
fn a_rule_is_written_as_it_is_read() {
    for text in [
        "static-pods",
        "own-namespace",
        "namespace=kube-system",
        "services",
        "service=kube-scheduler.service",
        "root",
        "user=1000",
        "cgroup=/docker/a",
        "parent=7",
        "all",
    ] {
        assert_eq!(text.parse::<Rule>().unwrap().to_string(), text);
    }
    assert_eq!("user=0".parse(), Ok(Rule::User(0)));
    for wrong in [
        "",
        "static",
        "namespace=",
        "namespace=a/b",
        "service=k3s",
        "user=root",
        "cgroup=docker",
        "root=1",
        "x=y",
    ] {
        assert!(wrong.parse::<Rule>().is_err(), "{wrong}");
    }
}

#[test]
fn the_defaults_are_rules() {
    assert!(DEFAULT.split(',').all(|rule| rule.parse::<Rule>().is_ok()));
}

/// Rules, on a cluster where the plain Pod is in `shop`.
fn trust(rules: &str) -> Trust {
    let namespace_of = |uid: &str| (uid == PLAIN).then(|| "shop".to_owned());
    Trust {
        rules: rules.split(',').map(|rule| rule.parse().unwrap()).collect(),
        bases: host(),
        host: Host::default(),
        own_namespace: Some("tracing".to_owned()),
        namespace_of: Box::new(namespace_of),
    }
}

#[test]
fn a_pod_is_named_by_its_namespace_and_a_static_one_by_what_it_is() {
    let names = |rules: &str, place: &Place| {
        let trust = trust(rules);
        trust.rules.iter().any(|rule| trust.names_place(rule, place, || None))
    };
    assert!(!names(DEFAULT, &pod(PLAIN)));
    assert!(names("static-pods,namespace=shop", &pod(PLAIN)));
    assert!(!names("own-namespace", &pod(PLAIN)));
    assert!(names(DEFAULT, &pod(STATIC)));
    assert!(!names("namespace=shop,own-namespace,services,root", &pod(STATIC)));
    // One that the API server does not know.
    assert!(!names("namespace=shop", &pod(&PLAIN.replace('1', "2"))));
}

#[test]
fn a_service_is_named_if_root_runs_it_or_by_its_name() {
    let scheduler = at("/system.slice/kube-scheduler.service");
    let names = |rules: &str, user| {
        let trust = trust(rules);
        trust.rules.iter().any(|rule| trust.names_place(rule, &scheduler, || None))
            || trust.by_user(user, true).is_some()
    };
    assert!(names(DEFAULT, 0));
    assert!(!names(DEFAULT, 998));
    assert!(names("service=kube-scheduler.service", 998));
    assert!(!names("service=other.service,root,user=998", 998));
}

#[test]
fn a_process_of_the_host_is_named_by_its_user() {
    let names = |rules: &str, user| trust(rules).by_user(user, false).is_some();
    assert!(names("root", 0));
    assert!(!names("root,services", 1000));
    assert!(names("user=1000", 1000));
    assert!(!names("services", 0), "it is in none");
}

#[test]
fn a_process_in_namespaces_of_its_own_is_not_named_by_its_user() {
    let pid = std::process::id();
    let own = Credentials::of(pid).unwrap();
    let judged = |host| {
        let rules = vec![Rule::User(own.user)];
        Trust { rules, host, bases: Bases::default(), ..trust(DEFAULT) }.judge(pid).cloned()
    };
    assert_eq!(judged(Host::of_now()), Ok(Rule::User(own.user)));
    assert!(matches!(judged(Host::default()), Err(Stranger::Container(_))));
}

#[test]
fn who_is_not_known_yet_may_be_named_a_moment_later() {
    let Place::Pod(uid) = pod(PLAIN) else { unreachable!("it is a Pod") };
    assert!(!Stranger::Pod(uid.clone(), None).is_final() && !Stranger::Unreadable.is_final());
    assert!(Stranger::Pod(uid, Some("shop".to_owned())).is_final() && Stranger::Host(1000).is_final());
}

#[test]
fn this_process_is_named_by_its_parent_and_its_user() {
    let pid = std::process::id();
    let own = Credentials::of(pid).unwrap();
    let judged = |rule: Rule| Trust::new(vec![rule], Box::new(|_| None)).judge(pid).cloned();
    assert_eq!(judged(Rule::Parent(own.parent)), Ok(Rule::Parent(own.parent)));
    assert_eq!(judged(Rule::Parent(pid)), Ok(Rule::Parent(pid)));
    assert!(judged(Rule::Parent(u32::MAX)).is_err());
    assert_eq!(judged(Rule::All), Ok(Rule::All));
    assert_eq!(judged(Rule::User(own.user)), Ok(Rule::User(own.user)));
    assert!(judged(Rule::User(own.user + 1)).is_err());
}

#[test]
fn a_stranger_is_told_by_whom_it_would_be_named() {
    let Place::Pod(uid) = pod(PLAIN) else { unreachable!("it is a Pod") };
    let said = Stranger::Pod(uid.clone(), Some("shop".to_owned())).to_string();
    assert!(said.contains("--trust namespace=shop"), "{said}");
    let said = Stranger::Pod(uid, None).to_string();
    assert!(!said.contains("--trust"), "{said}");
    assert!(Stranger::Service("a.service".to_owned(), 7).to_string().contains("--trust service=a.service"));
    assert!(Stranger::Host(1000).to_string().contains("--trust user=1000"));
    let said = Stranger::Container("/docker/\u{1b}[2J".to_owned()).to_string();
    assert!(said.contains("cgroup=/docker/") && !said.contains('\u{1b}'), "{said}");
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "[0-9:/.a-z\\-_\n]{0,200}", base in "[0-9:/.a-z\n]{0,60}") {
        let bases = Bases::of(&base);
        let _ = (place(&text, &bases), path(&text, &bases), text.parse::<Rule>());
    }

    /// Whatever is below a cgroup that others may write in: it is not a Pod's.
    #[test]
    fn nothing_below_a_session_is_a_pod(below in "(/(kubepods|burstable|kubepods\\.slice|pod[0-9a-f]{32}|kubepods-pod[0-9a-f]{32}\\.slice|\\.\\.)){0,6}") {
        let text = format!("0::/user.slice/user-1000.slice/user@1000.service{below}\n");
        prop_assert_eq!(place(&text, &host()), Place::Elsewhere);
    }
}
