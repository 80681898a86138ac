// Package v1 has the fields of a Pod that are read.
package v1

type UID string

type ObjectMeta struct {
	Name        string
	Namespace   string
	UID         UID
	Annotations map[string]string
}

type PodSpec struct {
	NodeName      string
	SchedulerName string
}

type Pod struct {
	ObjectMeta
	Spec PodSpec
}
