// A stand-in for kube-scheduler: only names and shapes are the same.
module k8s.io/kubernetes

go 1.26
